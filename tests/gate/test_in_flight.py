"""Calls under way are found by session and id, end once, and are bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.model import Call, Context, InFlightCall, Kind, Message
from proxy.errors import SharedCallsUnavailableError
from proxy.gate.in_flight import InFlightCalls, without_arguments
from proxy.store.shared_calls import SharedCalls, open_shared_calls
from proxy.wire.a2a import is_rest
from tests.support.gate_fixture import ALLOW, CONTEXT


def in_flight(number: int, context: Context = CONTEXT) -> InFlightCall:
    message = Message(Kind.REQUEST, {}, "tools/call", number)
    return InFlightCall(f"call-{number}", message, context, Call("tools/call", "s", "a", "t"), ALLOW, 0.0, 0.0)


def test_an_answer_is_matched_by_server_session_and_id_with_its_type():
    in_flight_calls, mine = InFlightCalls(), in_flight(1)
    in_flight_calls.add(mine)
    assert in_flight_calls.find(CONTEXT, 1) is mine
    for context, message_id in (
        (CONTEXT, 2),
        (CONTEXT, None),
        (CONTEXT, [1]),
        (replace(CONTEXT, session="other"), 1),
        (replace(CONTEXT, session=None), 1),
        (replace(CONTEXT, server="other"), 1),
    ):
        assert in_flight_calls.find(context, message_id) is None


def test_a_call_without_a_session_is_counted_and_not_found():
    in_flight_calls, mine = InFlightCalls(), in_flight(1, replace(CONTEXT, session=None))
    in_flight_calls.add(mine)
    assert (len(in_flight_calls), in_flight_calls.find(CONTEXT, 1)) == (1, None)


def test_a_call_ends_once():
    in_flight_calls, mine = InFlightCalls(), in_flight(1)
    in_flight_calls.add(mine)
    assert not in_flight_calls.claim(CONTEXT, mine.message)
    assert [in_flight_calls.end(mine), in_flight_calls.end(mine), len(in_flight_calls)] == [True, False, 0]
    assert in_flight_calls.claim(CONTEXT, mine.message)


def test_an_id_is_claimed_by_requests_alone_and_given_back():
    in_flight_calls, request = InFlightCalls(), in_flight(1).message
    answer = Message(Kind.RESPONSE, {}, None, 1)
    assert in_flight_calls.claim(CONTEXT, request)
    assert not in_flight_calls.claim(CONTEXT, request)
    assert in_flight_calls.claim(CONTEXT, answer)
    in_flight_calls.release(CONTEXT, answer)
    assert in_flight_calls.claim(replace(CONTEXT, session=None), request)
    assert in_flight_calls.claim(replace(CONTEXT, session="other"), request)
    assert not in_flight_calls.claim(CONTEXT, request)
    in_flight_calls.release(CONTEXT, request)
    assert in_flight_calls.claim(CONTEXT, request)


def test_a_sessions_calls_are_those_under_way_in_it():
    in_flight_calls, mine, ended = InFlightCalls(), in_flight(1), in_flight(2)
    others = [in_flight(3, replace(CONTEXT, session=None)), in_flight(4, replace(CONTEXT, server="other"))]
    for each in (mine, ended, *others):
        in_flight_calls.add(each)
    in_flight_calls.end(ended)
    assert in_flight_calls.of_session(CONTEXT) == [mine]
    assert in_flight_calls.of_session(replace(CONTEXT, session=None)) == []


def test_a_call_that_ended_is_still_found_for_a_replay():
    in_flight_calls, mine = InFlightCalls(), in_flight(1)
    in_flight_calls.add(mine)
    in_flight_calls.end(mine)
    assert in_flight_calls.find(CONTEXT, 1) is mine


def test_what_is_remembered_is_bounded():
    in_flight_calls = InFlightCalls(limit=2)
    for number in range(9):
        in_flight_calls.add(in_flight(number))
        in_flight_calls.end(in_flight(number))
    assert [in_flight_calls.find(CONTEXT, number) is not None for number in range(9)] == [False] * 5 + [True] * 4


def test_arguments_are_not_kept():
    value = {"params": {"name": "t", "arguments": {"big": "x"}, "cursor": "abc", "task": {"ttl": 1}}}
    kept = without_arguments(Message(Kind.REQUEST, value, "tools/call", 7))
    assert (kept.params, kept.method, kept.id) == ({"cursor": True, "task": True}, "tools/call", 7)


def test_a_call_in_json_rpc_stays_one():
    """Its answer would be read as one in plain HTTP otherwise: an envelope and all for the result."""
    kept = without_arguments(Message(Kind.REQUEST, {"jsonrpc": "2.0", "params": {}}, "tools/call", 7))
    assert not is_rest(kept)
    assert is_rest(without_arguments(Message(Kind.REQUEST, {"params": {}}, "message/send", "rest 7")))


def test_ending_a_call_leaves_a_later_one_of_the_same_id_alone():
    in_flight_calls, first, second = InFlightCalls(), in_flight(1), in_flight(1)
    second.call_id = "call-1b"
    in_flight_calls.add(first)
    in_flight_calls.add(second)
    in_flight_calls.end(first)
    assert in_flight_calls.find(CONTEXT, 1) is second


def test_the_oldest_are_surplus():
    in_flight_calls = InFlightCalls(limit=2)
    for number in range(5):
        in_flight_calls.add(in_flight(number))
    ended = []
    for oldest in in_flight_calls.surplus("a"):
        in_flight_calls.end(oldest)
        ended.append(oldest.message.id)
    assert ended == [0, 1, 2]
    assert [left.message.id for left in in_flight_calls.remaining() if in_flight_calls.end(left)] == [3, 4]


def test_an_agent_pushes_out_its_own_calls_and_no_others():
    in_flight_calls = InFlightCalls(limit=10, of_agent=2)
    theirs = in_flight(100)
    theirs.call = replace(theirs.call, agent="another")
    in_flight_calls.add(theirs)
    for number in range(4):
        in_flight_calls.add(in_flight(number))
        for oldest in in_flight_calls.surplus("a"):
            in_flight_calls.end(oldest)
    assert [left.message.id for left in in_flight_calls.remaining() if in_flight_calls.end(left)] == [100, 2, 3]


def legacy(number: int) -> InFlightCall:
    return in_flight(number, replace(CONTEXT, transport="sse"))


def test_a_legacy_call_is_found_and_ended_once_by_whichever_worker(tmp_path: Path):
    folder = open_shared_calls(tmp_path)
    first, second = InFlightCalls(shared_calls=SharedCalls(folder)), InFlightCalls(shared_calls=SharedCalls(folder))
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
    folder = open_shared_calls(tmp_path)
    first, second = InFlightCalls(shared_calls=SharedCalls(folder)), InFlightCalls(shared_calls=SharedCalls(folder))
    mine, ordinary = legacy(1), in_flight(2)
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
    shared_calls = SharedCalls(open_shared_calls(tmp_path))
    in_flight_calls, mine = InFlightCalls(shared_calls=shared_calls), legacy(1)
    in_flight_calls.add(mine)
    shared_calls.close()
    with pytest.raises(SharedCallsUnavailableError):
        in_flight_calls.claim(mine.context, legacy(2).message)
    with pytest.raises(SharedCallsUnavailableError):
        in_flight_calls.claim(CONTEXT, legacy(2).message)
    with pytest.raises(SharedCallsUnavailableError):
        in_flight_calls.add(legacy(2))
    assert in_flight_calls.find(mine.context, 9) is None
    assert in_flight_calls.of_session(mine.context) == [mine]
    in_flight_calls.catch_up()
    assert in_flight_calls.end(mine)
