"""Calls under way are found by session and id, end once, and are bounded."""

from __future__ import annotations

from dataclasses import replace

from proxy.exchanges import Exchanges, without_arguments
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
    assert exchanges.is_open(CONTEXT, 1)
    assert [exchanges.end(mine), exchanges.end(mine), len(exchanges)] == [True, False, 0]
    assert not exchanges.is_open(CONTEXT, 1)


def test_a_sessions_calls_are_those_under_way_in_it():
    exchanges, mine, ended = Exchanges(), exchange(1), exchange(2)
    others = [exchange(3, replace(CONTEXT, session=None)), exchange(4, replace(CONTEXT, server="other"))]
    for each in (mine, ended, *others):
        exchanges.add(each)
    exchanges.end(ended)
    assert exchanges.of_session(CONTEXT) == [mine]
    assert exchanges.of_session(replace(CONTEXT, session=None)) == []


def test_a_call_that_ended_is_still_found_for_a_replay():
    exchanges, mine = Exchanges(), exchange(1)
    exchanges.add(mine)
    exchanges.end(mine)
    assert exchanges.find(CONTEXT, 1) is mine


def test_what_is_remembered_is_bounded():
    exchanges = Exchanges(limit=2)
    for number in range(9):
        exchanges.add(exchange(number))
        exchanges.end(exchange(number))
    assert [exchanges.find(CONTEXT, number) is not None for number in range(9)] == [False] * 5 + [True] * 4


def test_arguments_are_not_kept():
    value = {"params": {"name": "t", "arguments": {"big": "x"}, "cursor": "abc", "task": {"ttl": 1}}}
    kept = without_arguments(Message(Kind.REQUEST, value, "tools/call", 7))
    assert (kept.params, kept.method, kept.id) == ({"cursor": True, "task": True}, "tools/call", 7)


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
