"""Rules over other methods than tools/call, through the real proxy: what is denied never reaches the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.test_responses import request, response, scripted
from tests.support.harness import Interlock, start_interlock
from tests.support.method_rules import FILE, completion, sampled
from tests.support.raw_socket import parse_answers, send_raw

ANSWER = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode()


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), policy=json.dumps(FILE)) as running:
        yield running


def ask(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


CASES = [
    ("no-secrets-read", ask("resources/read", {"uri": "file:///secrets/a"}), ask("resources/read", {"uri": "x://a"})),
    ("no-guessing", ask("completion/complete", completion("token")), ask("completion/complete", completion("city"))),
]


@pytest.mark.parametrize(("rule", "denied", "allowed"), CASES, ids=["resources", "completion"])
def test_a_request_that_a_rule_denies_does_not_reach_the_server(
    interlock: Interlock, rule: str, denied: bytes, allowed: bytes
) -> None:
    with scripted(response(ANSWER, "application/json")) as (port, requests):
        refused = send_raw("127.0.0.1", interlock.port, [request(port, denied)])
        passed = send_raw("127.0.0.1", interlock.port, [request(port, allowed)])
    error = json.loads(parse_answers(refused)[0].body)["error"]
    assert (error["data"]["reason"], error["data"]["rule"]) == ("policy_denied", rule)
    assert json.loads(parse_answers(passed)[0].body)["result"] == {}
    assert [json.loads(sent.partition(b"\r\n\r\n")[2]) for sent in requests] == [json.loads(allowed)]


def test_a_sampled_answer_that_a_rule_denies_does_not_reach_the_server(interlock: Interlock) -> None:
    allowed = json.dumps(sampled("hello")).encode()
    with scripted(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n") as (port, requests):
        denied = json.dumps(sampled("-----BEGIN PRIVATE KEY-----")).encode()
        assert parse_answers(send_raw("127.0.0.1", interlock.port, [request(port, denied)]))[0].status == 202
        assert parse_answers(send_raw("127.0.0.1", interlock.port, [request(port, allowed)]))[0].status == 202
    assert [json.loads(sent.partition(b"\r\n\r\n")[2]) for sent in requests] == [json.loads(allowed)]
    decided = [event for event in interlock.events() if event.get("rule") == "no-keys-sampled"]
    assert [event["decision"] for event in decided] == ["deny"]
