"""Requests inside results, answers inside requests, and task ids, wherever they stand."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.wire.mcp_exchange import RELATED_TASK, input_requests, input_responses, is_plain_result, method_of, task_ids

ASK = {"method": "elicitation/create", "params": {"message": "?"}}
FOUND = [("elicitation/create", {"message": "?"})]


@pytest.mark.parametrize(
    "message",
    [
        {"result": {"resultType": "input_required", "inputRequests": {"a": ASK}}},
        {"result": {"status": "input_required", "inputRequests": {"a": ASK}}},
        {"result": {"task": {"inputRequests": {"a": ASK}}}},
        {"result": {"result": {"inputRequests": {"a": ASK}}}},
        {"result": {"inputRequests": [ASK]}},
        {"result": {"InputRequests": {"a": {"Method": ASK["method"], "params": ASK["params"]}}}},
        {"method": "notifications/tasks", "params": {"taskId": "t", "inputRequests": {"a": ASK}}},
        {"error": {"code": 1, "message": "", "data": {"inputRequests": {"a": ASK}}}},
    ],
)
def test_a_request_is_found_wherever_a_client_may_look_for_it(message: dict[str, Any]) -> None:
    assert list(input_requests(message)) == FOUND


@pytest.mark.parametrize(
    "message",
    [
        {"result": {"content": [], "structuredContent": {"inputRequests": {"a": ASK}}}},
        {"result": {"inputRequests": "text"}},
        {"result": {"inputRequests": {"a": "text", "b": {"method": 5}}}},
        {"result": None},
        {},
    ],
)
def test_what_no_client_takes_for_a_request_is_none(message: dict[str, Any]) -> None:
    assert list(input_requests(message)) == []


def test_parameters_that_are_no_object_count_as_none() -> None:
    message = {"result": {"inputRequests": {"a": {"method": "roots/list", "params": [1]}}}}
    assert list(input_requests(message)) == [("roots/list", {})]


def test_an_answer_shows_what_it_answers() -> None:
    answers = {
        "a": {"action": "accept"},
        "b": {"role": "assistant", "content": {}, "model": "m"},
        "c": {"roots": []},
        "d": {"x": 1},
        "e": 5,
    }
    methods = [method for method, _ in input_responses({"inputResponses": answers})]
    assert methods == ["elicitation/create", "sampling/createMessage", "roots/list", None, None]


@pytest.mark.parametrize(("given", "count"), [(None, 0), ([{"action": "accept"}], 1), ("text", 1), ({}, 0)])
def test_odd_forms_of_answers_are_taken_as_answers(given: Any, count: int) -> None:
    assert len(list(input_responses({"inputResponses": given}))) == count
    assert list(input_responses({})) == []


def test_the_tasks_of_a_message_are_found() -> None:
    assert task_ids({"result": {"taskId": "a", "resultType": "task"}}) == ["a"]
    assert task_ids({"result": {"task": {"taskId": "a"}}}) == ["a"]
    assert task_ids({"result": {"tasks": [{"taskId": "a"}, {"taskId": 5}, "x"]}}) == ["a"]
    assert task_ids({"params": {"taskId": "b", "_meta": {RELATED_TASK: {"taskId": "a"}}}}) == ["b", "a"]
    assert task_ids({"result": {"content": []}}) == []


def test_a_method_is_found_as_lenient_clients_find_it() -> None:
    assert method_of({"method": "x"}) == "x"
    assert method_of({"Method": "x"}) == "x"
    assert method_of({"method": 5}) is None
    assert method_of({"result": {}}) is None


def test_a_plain_result_carries_nothing_inside() -> None:
    plain = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "isError": False, "structuredContent": {}}}
    assert is_plain_result(plain)
    for result in ({"inputRequests": {}}, {"InputRequests": {}}, {"taskId": "t"}, {"task": {}}, {"tasks": []}, None):
        assert not is_plain_result({**plain, "result": result})
    assert not is_plain_result({**plain, "method": "sampling/createMessage"})
    assert not is_plain_result({**plain, "params": {"inputRequests": {}}})
    assert not is_plain_result({"jsonrpc": "2.0", "id": 1, "error": {}})
