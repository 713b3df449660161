"""Calls under way are found by session and id, end once, and are bounded."""

from __future__ import annotations

from dataclasses import replace

from proxy.exchanges import Exchanges
from proxy.model import Call, Context, Exchange, Kind, Message
from tests.gate_world import ALLOW, CONTEXT


def exchange(number: int, context: Context = CONTEXT) -> Exchange:
    message = Message(Kind.REQUEST, {}, "tools/call", number)
    return Exchange(f"call-{number}", message, context, Call("tools/call", "s", "a", "t"), ALLOW, 0.0, 0.0)


def test_an_answer_is_matched_by_server_session_and_id_with_its_type():
    exchanges, mine = Exchanges(), exchange(1)
    exchanges.add(mine)
    assert exchanges.find(CONTEXT, 1) is mine
    for context, message_id in (
        (CONTEXT, 2),
        (CONTEXT, None),
        (CONTEXT, [1]),
        (replace(CONTEXT, session="other"), 1),
        (replace(CONTEXT, session=None), 1),
        (replace(CONTEXT, server="other"), 1),
    ):
        assert exchanges.find(context, message_id) is None


def test_a_call_without_a_session_is_counted_and_not_found():
    exchanges, mine = Exchanges(), exchange(1, replace(CONTEXT, session=None))
    exchanges.add(mine)
    assert (len(exchanges), exchanges.find(CONTEXT, 1)) == (1, None)


def test_a_call_ends_once():
    exchanges, mine = Exchanges(), exchange(1)
    exchanges.add(mine)
    assert [exchanges.end(mine), exchanges.end(mine), len(exchanges)] == [True, False, 0]
    assert exchanges.find(CONTEXT, 1) is None


def test_ending_a_call_leaves_a_later_one_of_the_same_id_alone():
    exchanges, first, second = Exchanges(), exchange(1), exchange(1)
    second.call_id = "call-1b"
    exchanges.add(first)
    exchanges.add(second)
    exchanges.end(first)
    assert exchanges.find(CONTEXT, 1) is second


def test_the_oldest_are_surplus():
    exchanges = Exchanges(limit=2)
    for number in range(5):
        exchanges.add(exchange(number))
    ended = []
    for oldest in exchanges.surplus():
        exchanges.end(oldest)
        ended.append(oldest.message.id)
    assert ended == [0, 1, 2]
    assert [left.message.id for left in exchanges.remaining() if exchanges.end(left)] == [3, 4]
