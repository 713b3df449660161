"""Calls under way are found by session and id, end once, and are bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.model import Call, Context, Exchange, Kind, Message
from proxy.errors import BoardUnavailableError
from proxy.gate.in_flight import Exchanges, without_arguments
from proxy.store.shared_calls import Board, make_board
from tests.support.gate_fixture import ALLOW, CONTEXT


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
    assert not exchanges.claim(CONTEXT, mine.message)
    assert [exchanges.end(mine), exchanges.end(mine), len(exchanges)] == [True, False, 0]
    assert exchanges.claim(CONTEXT, mine.message)


def test_an_id_is_claimed_by_requests_alone_and_given_back():
    exchanges, request = Exchanges(), exchange(1).message
    answer = Message(Kind.RESPONSE, {}, None, 1)
    assert exchanges.claim(CONTEXT, request)
    assert not exchanges.claim(CONTEXT, request)
    assert exchanges.claim(CONTEXT, answer)
    exchanges.let_go(CONTEXT, answer)
    assert exchanges.claim(replace(CONTEXT, session=None), request)
    assert exchanges.claim(replace(CONTEXT, session="other"), request)
    assert not exchanges.claim(CONTEXT, request)
    exchanges.let_go(CONTEXT, request)
    assert exchanges.claim(CONTEXT, request)


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
    for oldest in exchanges.surplus("a"):
        exchanges.end(oldest)
        ended.append(oldest.message.id)
    assert ended == [0, 1, 2]
    assert [left.message.id for left in exchanges.remaining() if exchanges.end(left)] == [3, 4]


def test_an_agent_pushes_out_its_own_calls_and_no_others():
    exchanges = Exchanges(limit=10, of_agent=2)
    theirs = exchange(100)
    theirs.call = replace(theirs.call, agent="another")
    exchanges.add(theirs)
    for number in range(4):
        exchanges.add(exchange(number))
        for oldest in exchanges.surplus("a"):
            exchanges.end(oldest)
    assert [left.message.id for left in exchanges.remaining() if exchanges.end(left)] == [100, 2, 3]


def legacy(number: int) -> Exchange:
    return exchange(number, replace(CONTEXT, transport="sse"))


def test_a_legacy_call_is_found_and_ended_once_by_whichever_worker(tmp_path: Path):
    folder = make_board(tmp_path)
    first, second = Exchanges(board=Board(folder)), Exchanges(board=Board(folder))
    mine, kept = legacy(1), legacy(2)
    assert first.claim(mine.context, mine.message)
    for each in (mine, kept):
        first.add(each)
    found = second.find(mine.context, 1)
    assert found is not None
    assert (found.call_id, found.closed, found.shared) == (mine.call_id, False, True)
    assert not second.claim(mine.context, mine.message)
    assert [second.end(found), first.end(mine)] == [True, False]
    again = second.find(mine.context, 1)
    assert again is not None
    assert again.closed, "a replay is still masked by its rules"
    assert [each.call_id for each in second.of_session(kept.context)] == [kept.call_id]
    assert (len(first), len(second)) == (1, 0)


def test_a_worker_lets_go_of_what_another_has_ended(tmp_path: Path):
    folder = make_board(tmp_path)
    first, second = Exchanges(board=Board(folder)), Exchanges(board=Board(folder))
    mine, ordinary = legacy(1), exchange(2)
    first.add(mine)
    first.add(ordinary)
    assert second.find(ordinary.context, 2) is None, "an ordinary call is no other worker's business"
    first.catch_up()
    assert len(first) == 2
    found = second.find(mine.context, 1)
    assert found is not None
    second.end(found)
    first.catch_up()
    assert (len(first), mine.closed) == (1, True)
    assert first.claim(mine.context, mine.message)


def test_a_board_that_cannot_be_used_refuses_calls_and_loses_no_ending(tmp_path: Path):
    board = Board(make_board(tmp_path))
    exchanges, mine = Exchanges(board=board), legacy(1)
    exchanges.add(mine)
    board.close()
    with pytest.raises(BoardUnavailableError):
        exchanges.claim(mine.context, legacy(2).message)
    with pytest.raises(BoardUnavailableError):
        exchanges.claim(CONTEXT, legacy(2).message)
    with pytest.raises(BoardUnavailableError):
        exchanges.add(legacy(2))
    assert exchanges.find(mine.context, 9) is None
    assert exchanges.of_session(mine.context) == [mine]
    exchanges.catch_up()
    assert exchanges.end(mine)
