"""Request heads are bounded in size and time, and what cannot be read is refused in our own words."""

from __future__ import annotations

import pytest
from mitmproxy.proxy import commands

from addons.limits import HttpRefusedHook, Limits
from addons.mitm.fast.http_layer import FastHttpLayer
from addons.mitm.http_layer import GuardedHttpLayer
from tests.addons.mitm.test_http_stream import REQUEST, Conversation

CHUNKED = REQUEST.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2]
LIMITS = Limits(header_bytes=1000, body_bytes=1000)


@pytest.fixture(params=[GuardedHttpLayer, FastHttpLayer])
def conversation(request: pytest.FixtureRequest) -> Conversation:
    return Conversation(request.param, LIMITS)


def reasons(conversation: Conversation) -> list[str]:
    return [one.refusal.reason for one in conversation.commands if isinstance(one, HttpRefusedHook)]


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 1000, b"431", "head_too_large"),
        (b"a secret\r\n\r\n", b"400", "not_http"),
        (b"GET /a HTTP/1.1\r\na secret\r\n\r\n", b"400", "bad_request"),
        (b"POST /a HTTP/1.1\r\nContent-Length: secret\r\n\r\n", b"400", "bad_request"),
        (
            REQUEST.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2] + b"secret\r\n",
            b"400",
            "bad_request",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_and_not_quoted(
    conversation: Conversation, data: bytes, status: bytes, reason: str
) -> None:
    answer = conversation.ask(data)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"secret" not in answer
    assert reasons(conversation) == [reason]
    assert any(isinstance(one, commands.CloseConnection) for one in conversation.commands)


def test_a_head_that_takes_too_long_is_refused(conversation: Conversation) -> None:
    assert conversation.ask(b"GET / HT") == b""
    assert conversation.wake().startswith(b"HTTP/1.1 408")
    assert reasons(conversation) == ["head_too_slow"]


def test_empty_lines_before_a_request_are_skipped_and_pipelined_requests_are_answered(
    conversation: Conversation,
) -> None:
    assert conversation.ask(b"\r\n\r\n" + REQUEST * 3).count(b"HTTP/1.1 200") == 3
    assert reasons(conversation) == []


def test_trailers_are_refused(conversation: Conversation) -> None:
    answer = conversation.ask(CHUNKED + b"2\r\n{}\r\n0\r\nX-Secret: y\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert reasons(conversation) == ["trailers"]
