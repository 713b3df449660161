"""A2A on the wire: methods, paths, cards, and messages without an envelope."""

from __future__ import annotations

import gzip
import json

import pytest

from proxy.errors import WireError
from proxy.policy.lint_patterns import dead_patterns
from proxy.policy.rules import DenyRule
from proxy.wire.a2a import (
    METHODS,
    NAMED,
    SLASHED,
    card_path,
    is_rest,
    looks_like_card,
    read_rest,
    rest_error,
    rest_method,
)
from proxy.wire.body import MessageBatch, NotMcp, RefusedBody, SingleMessage, read_body


def message(method: str, **more: object) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": {"parts": []}}, **more}
    ).encode()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_is_read_as_a_message(method: str) -> None:
    parsed = read_body(message(method))
    assert isinstance(parsed, SingleMessage)
    assert parsed.message.method == method


@pytest.mark.parametrize(
    "body",
    [
        message("Message/Send"),
        message("message/send").replace(b'"method"', b'"Method"'),
        message("message/send").replace(b'"method"', b'"method":"x","method"'),
        message("SendMessage").replace(b'"method"', b'"Method"'),
        b"// x\n" + message("message/send"),
        json.dumps(message("message/send").decode()).encode(),
        message("message/s\\end").replace(b"\\\\", b"\\"),
    ],
)
def test_what_only_some_servers_read_is_refused(body: bytes) -> None:
    assert isinstance(read_body(body), RefusedBody)


def test_a_batch_is_one() -> None:
    assert isinstance(read_body(b"[" + message("message/send") + b"]"), MessageBatch)


@pytest.mark.parametrize(
    "body",
    [
        message("sendMessage"),
        message("message/list"),
        message("eth_call"),
        b'["message/rfc822", {"a": 1}]',
        b'{"method": "SendMessage", "text": "x"}',
        b'{"message": {"parts": []}}',
    ],
)
def test_what_other_services_say_is_left_alone(body: bytes) -> None:
    assert isinstance(read_body(body), NotMcp)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v1/message:send", "message/send"),
        ("/message:send", "message/send"),
        ("/tenant/message:stream?x=1", "message/stream"),
        ("/v1/message%3Asend", "message/send"),
        ("/v1/message%253Asend", "message/send"),
        ("/v1/./message:send/", "message/send"),
        ("/v1/Message:Send", "message/send"),
        ("/v1/tasks/7:cancel", "tasks/cancel"),
        ("/tasks/7:subscribe", "tasks/resubscribe"),
        ("/v1/tasks/7/pushNotificationConfigs", "tasks/pushNotificationConfig/set"),
        ("/v1/messages", None),
        ("/message:sender", None),
        ("/a2a", None),
        ("/x?y=/message:send", None),
    ],
)
def test_paths_name_methods(target: str, expected: str | None) -> None:
    assert rest_method(target) == expected


@pytest.mark.parametrize(
    ("target", "is_card"),
    [
        ("/.well-known/agent-card.json", True),
        ("/.well-known/agent.json?x", True),
        ("/agents/7/.well-known/agent-card.json", True),
        ("/%2ewell-known/agent-card.json", True),
        ("/extendedAgentCard", True),
        ("/v1/card", True),
        ("/.well-known/openid-configuration", False),
        ("/cards", False),
    ],
)
def test_paths_of_cards(target: str, is_card: bool) -> None:
    assert (card_path(target) is not None) is is_card


def test_a_card_is_known_by_its_shape() -> None:
    assert looks_like_card({"name": "x", "skills": [], "url": "https://a.example"})
    assert looks_like_card({"name": "x", "skills": [], "supportedInterfaces": []})
    assert not looks_like_card({"name": "x", "skills": ["sewing"]})
    assert not looks_like_card([])


def test_a_message_is_made_of_path_and_body() -> None:
    made = read_rest("message/send", b'{"message": {}}', (), 1000, "7")
    assert (made.method, made.id, made.params) == ("message/send", "7", {"message": {}})
    assert is_rest(made)
    assert read_rest("message/send", gzip.compress(b'{"a": 1}'), ("gzip",), 1000, "7").params == {"a": 1}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a":1,"a":2}', b'"x"', b"\xff{}", b"a=1"])
def test_a_body_that_is_not_one_strict_object_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        read_rest("message/send", body, (), 1000, "7")


def test_a_refusal_says_why() -> None:
    answer = {"error": {"code": 40301, "message": "no", "data": {"reason": "policy_denied"}}}
    assert rest_error(answer)["error"]["details"] == [{"reason": "policy_denied"}]


def test_both_versions_have_their_names() -> None:
    assert "message/send" in SLASHED
    assert "SendMessage" in NAMED


@pytest.mark.parametrize("method", sorted(METHODS))
def test_rules_may_name_every_method(method: str) -> None:
    rule = DenyRule.model_validate({"id": "x", "action": "deny", "methods": [method]})
    assert list(dead_patterns(rule)) == []
