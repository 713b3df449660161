"""The whitelist of heads: what is written otherwise is none of the lane's."""

from __future__ import annotations

import pytest

from addons.lane.heads import (
    HEAD_BYTES,
    ResponseHead,
    head_template,
    is_plain_request,
    read_response,
    request_key,
    with_length,
)
from tests.addons.lane.grammar import compare_requests, compare_responses

PLAIN = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"


def test_a_plain_head_is_taken_and_split_at_its_length() -> None:
    assert is_plain_request(PLAIN)
    assert is_plain_request(PLAIN.replace(b"/mcp", b"http://a:80/mcp?x=1"))
    key = request_key(PLAIN)
    assert key is not None
    assert (key.values, key.length) == ((), 12)
    assert key == request_key(PLAIN.replace(b"12", b"13"))._replace(length=12)  # type: ignore[union-attr]


VARIED = PLAIN.replace(
    b"Host: a\r\n",
    b"TraceParent: 00-1\r\nHost: a\r\nMcp-Session-Id: s-1\r\nbaggage: a=b, c=d\r\nX-Request-Id: 7\r\n",
)
NAMES = (b"traceparent", b"mcp-session-id", b"baggage", b"x-request-id")


def test_heads_that_differ_in_values_of_known_fields_alone_have_one_key() -> None:
    key = request_key(VARIED)
    assert key is not None
    assert key.names == NAMES
    assert key.values == (b"00-1", b"s-1", b"a=b, c=d", b"7")
    other = request_key(VARIED.replace(b"s-1", b"s-2").replace(b"a=b, c=d", b"x"))
    assert other is not None
    assert (other.fixed, other.values) == (key.fixed, (b"00-1", b"s-2", b"x", b"7"))


@pytest.mark.parametrize(
    "head",
    [
        VARIED.replace(b"Host: a", b"Host: b"),
        VARIED.replace(b"/mcp", b"/other"),
        VARIED.replace(b"Mcp-Session-Id", b"mcp-session-id"),
        VARIED.replace(b"s-1", b""),
        VARIED.replace(b"s-1", b" s-1"),
        VARIED.replace(b"s-1", b"s-1 "),
        VARIED.replace(b"s-1", b"s  1"),
        VARIED.replace(b"s-1", b"s\t1"),
        VARIED.replace(b"s-1", b"s\x801"),
        VARIED.replace(b"s-1", b"s\0"),
        VARIED.replace(b"s-1", b"s\n1"),
        VARIED.replace(b"s-1", b"s\r1"),
        VARIED.replace(b"s-1", b"s\r\n 1"),
        VARIED.replace(b"s-1", b"s\r\nX: 1"),
        VARIED.replace(b"s-1", b"s\r\nMcp-Session-Id: s-2"),
        VARIED.replace(b"s-1", b"s\r\nTransfer-Encoding: chunked"),
        VARIED.replace(b"Mcp-Session-Id: s-1\r\n", b""),
        VARIED.replace(b"X-Request-Id: 7\r\n", b"") + b"X-Request-Id: 7\r\n",
    ],
)
def test_a_head_that_differs_otherwise_has_another_key(head: bytes) -> None:
    one, other = request_key(VARIED), request_key(head)
    assert one is not None
    assert other is None or other.fixed != one.fixed


def test_a_head_is_written_anew_with_other_values() -> None:
    template = head_template(VARIED, NAMES)
    assert template is not None
    assert template.fill((b"00-1", b"s-1", b"a=b, c=d", b"7"), 12) == VARIED
    # Another order than that of the head that came: the names say which value goes where.
    turned = head_template(VARIED, (b"x-request-id", b"baggage", b"mcp-session-id", b"traceparent"))
    assert turned is not None
    assert turned.fill((b"8", b"y", b"s-9", b"00-2"), 3) == (
        VARIED.replace(b"00-1", b"00-2").replace(b"s-1", b"s-9").replace(b"a=b, c=d", b"y").replace(b": 7", b": 8")
    ).replace(b"12", b"3")


@pytest.mark.parametrize("names", [NAMES[1:], (*NAMES, b"b3"), (*NAMES[1:], b"b3"), (*NAMES, NAMES[0])])
def test_a_head_without_exactly_these_fields_is_not_written_anew(names: tuple[bytes, ...]) -> None:
    assert head_template(VARIED, names) is None


@pytest.mark.parametrize(
    "head",
    [
        PLAIN.replace(b"POST", b"GET"),
        PLAIN.replace(b"POST", b"post"),
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN.replace(b" /mcp", b"  /mcp"),
        PLAIN.replace(b" /mcp", b" /m\x80"),
        PLAIN.replace(b" /mcp", b" *"),
        PLAIN.replace(b"Host: a", b"Host:a"),
        PLAIN.replace(b"Host: a", b"Host: a "),
        PLAIN.replace(b"Host: a", b"Host: a\tb"),
        PLAIN.replace(b"Host: a", b"Host: \xe9"),
        PLAIN.replace(b"Host: a", b"Host : a"),
        PLAIN.replace(b"Host: a", b"Host: a\r\n b"),
        PLAIN.replace(b"Host: a\r\n", b"Host: a\n"),
        PLAIN.replace(b"Host: a", b"Host: a\rb"),
        PLAIN.replace(b"Host: a", b"Host: a\0"),
        PLAIN.replace(b"Host: a", b"Transfer-Encoding: chunked"),
        PLAIN.replace(b"Host: a", b"transfer-encoding: identity"),
        PLAIN.replace(b"Host: a", b"Connection: close"),
        PLAIN.replace(b"Host: a", b"Connection: keep-alive, x"),
        PLAIN.replace(b"Host: a", b"Upgrade: h2c"),
        PLAIN.replace(b"Host: a", b"Expect: 100-continue"),
        PLAIN.replace(b"Host: a", b"Content-Encoding: gzip"),
        PLAIN.replace(b"Host: a", b"TE: trailers"),
        PLAIN.replace(b"Host: a", b"content-length: 12"),
        PLAIN.replace(b"Host: a", b"X: " + b"y" * HEAD_BYTES),
        PLAIN[:-2],
        PLAIN + b"x",
        b"",
    ],
)
def test_any_other_head_is_left_to_the_layers(head: bytes) -> None:
    assert not is_plain_request(head)


@pytest.mark.parametrize("length", [b"+1", b"01", b"1 ", b"1,1", b"-1", b"0x1", b"", b"12345678901"])
def test_an_odd_length_is_none(length: bytes) -> None:
    assert request_key(PLAIN.replace(b"12", length)) is None


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON\r\nContent-Length: 2\r\n\r\n"
CHUNKED = ANSWER.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")


def test_a_plain_answer_is_read() -> None:
    assert read_response(ANSWER + b"{}") == ResponseHead(len(ANSWER), b"application/json", 2)
    assert read_response(CHUNKED) == ResponseHead(len(CHUNKED), b"application/json", None)
    assert read_response(ANSWER.replace(b"JSON", b"json; charset=utf-8")) is not None


@pytest.mark.parametrize(
    "head",
    [
        ANSWER[:-1],
        ANSWER.replace(b"200", b"202"),
        ANSWER.replace(b"1.1", b"1.0"),
        ANSWER.replace(b"\r\n", b"\n"),
        ANSWER.replace(b"Content-Type: Application/JSON\r\n", b""),
        ANSWER.replace(b"Content-Length: 2\r\n", b""),
        ANSWER.replace(b"JSON", b"json; charset=latin-1"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nContent-Type: text/html\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nContent-Length: 2\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nTransfer-Encoding: chunked\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nContent-Encoding: gzip\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nConnection: close\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nUpgrade: x\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\nTrailer: x\r\n"),
        ANSWER.replace(b"JSON\r\n", b"json\r\n x\r\n"),
        CHUNKED.replace(b"chunked", b"gzip, chunked"),
        CHUNKED.replace(b"chunked\r\n", b"chunked\r\nTransfer-Encoding: chunked\r\n"),
    ],
)
def test_any_other_answer_is_left_to_the_layers(head: bytes) -> None:
    assert read_response(head) is None


def test_a_new_length_takes_the_place_of_the_old_one_or_of_chunks() -> None:
    assert with_length(ANSWER, 77) == ANSWER.replace(b": 2", b": 77")
    assert with_length(CHUNKED, 77) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON\r\ncontent-length: 77\r\n\r\n"
    )


def test_what_the_lane_takes_the_layers_read_the_same() -> None:
    assert compare_requests(3_000, 1) > 300
    assert compare_responses(3_000, 1) > 300
