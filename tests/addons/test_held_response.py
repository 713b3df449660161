"""The response that is begun while its call waits, by itself; on the wire in tests/acceptance/test_kept_alive.py."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any
from unittest import mock

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons.held_response import COMMENT, HeldResponse, as_event, begun_head, takes_events
from addons.limits import HeldPiece
from proxy.core.model import Answer, CallerLink, Forward, Held, Pass, Verdict
from tests.support.timeouts import PATIENCE


class Carrier:
    """Notes what it is to carry out."""

    def __init__(self) -> None:
        self.answered: list[Answer] = []

    async def answer(self, verdict: Answer) -> None:
        self.answered.append(verdict)


def flow(accept: str = "application/json, text/event-stream") -> http.HTTPFlow:
    made = tflow.tflow()
    made.request.method = "POST"
    made.request.headers["accept"] = accept
    return made


def held(verdict: asyncio.Future[Verdict], seen: list[CallerLink] | None = None, seconds: float = 0.01) -> HeldResponse:
    async def wait(link: CallerLink) -> Verdict:
        if seen is not None:
            seen.append(link)
        return await verdict

    return HeldResponse(flow(), Held(wait, 7), Carrier(), seconds)  # type: ignore[arg-type]


async def test_signs_of_life_come_until_the_wait_is_over() -> None:
    verdict: asyncio.Future[Verdict] = asyncio.Future()
    seen: list[CallerLink] = []
    response = held(verdict, seen)
    first, second, last = HeldPiece(flow()), HeldPiece(flow()), HeldPiece(flow())
    await response.next(first)
    assert (first.data, first.is_decided, first.makes_call) == (COMMENT, False, False)
    await seen[0].send({"method": "notifications/progress"})
    await response.next(second)
    assert second.data == b'event: message\ndata: {"method":"notifications/progress"}\n\n'
    verdict.set_result(Answer(()))
    await response.next(last)
    assert (last.data, last.is_decided, last.makes_call) == (b"", True, False)


async def test_a_flow_that_is_over_has_nobody_who_waits() -> None:
    verdict: asyncio.Future[Verdict] = asyncio.Future()
    seen: list[CallerLink] = []
    response = held(verdict, seen)
    await response.next(HeldPiece(flow()))
    assert not seen[0].gone()
    ended: list[Any] = []
    response.give_up(lambda *call: ended.append(call))
    assert seen[0].gone()
    # The decision may have been under way: what it lets through is not made, and does not stay open.
    verdict.set_result(Forward(mock.sentinel.message, mock.sentinel.in_flight, {}, None, 0))
    async with asyncio.timeout(PATIENCE):
        while not ended:
            await asyncio.sleep(0)
    assert ended == [(mock.sentinel.in_flight, "not_forwarded")]


async def test_a_wait_that_nobody_would_carry_out_is_given_up() -> None:
    verdict: asyncio.Future[Verdict] = asyncio.Future()
    response = held(verdict, seconds=PATIENCE)
    for waiting in (response.next(HeldPiece(flow())), response.is_decided(PATIENCE)):
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert verdict.cancelled()


async def test_what_is_no_verdict_is_not_carried_out() -> None:
    verdict: asyncio.Future[Any] = asyncio.Future()
    verdict.set_result("go on")
    piece = HeldPiece(flow())
    with pytest.raises(TypeError):
        await held(verdict).next(piece)
    assert (piece.is_decided, piece.makes_call) == (False, False)
    verdict = asyncio.Future()
    verdict.set_result(Pass())
    with pytest.raises(AttributeError):  # this carrier lets nothing pass; the real one would not forward a call so
        await held(verdict).next(piece)
    assert not piece.makes_call


@pytest.mark.parametrize(
    ("status", "kind", "body", "error"),
    [
        (200, "application/json", b'{"jsonrpc":"2.0","id":7,\n"result":{}}', None),
        (200, "text/html", b"{}", "HTTP 200 and no result"),
        (200, "application/json", b"[]", "HTTP 200 and no result"),
        (202, "application/json", b"", "HTTP 202 and no result"),
        (502, "text/html", b"<html>", "HTTP 502 and no result"),
        (400, "application/json", b'{"error":{"code":-1,"message":"no such session"},"id":null}', "no such session"),
        (403, "application/json", b'{"error":{"message":"refused","data":{}}}', "refused"),
        (500, "application/json", b'{"error":"text"}', "HTTP 500 and no result"),
        (500, "application/json", b"[" * 100_000, "HTTP 500 and no result"),
    ],
)
async def test_an_answer_that_is_no_message_is_an_error_with_the_id(
    status: int, kind: str, body: bytes, error: str | None
) -> None:
    verdict: asyncio.Future[Verdict] = asyncio.Future()
    verdict.set_result(Answer(()))
    event = held(verdict).answer(http.Response.make(status, body, {"content-type": kind}))
    lines = event.decode().split("\n")
    assert (lines[0], lines[-2:]) == ("event: message", ["", ""])
    told = json.loads("\n".join(line.removeprefix("data: ") for line in lines[1:-2]))
    assert told["id"] == 7
    if error is None:
        assert told["result"] == {}
    else:
        assert error in told["error"]["message"]
        assert isinstance(told["error"]["code"], int)


async def test_an_answer_in_a_content_coding_is_decoded() -> None:
    verdict: asyncio.Future[Verdict] = asyncio.Future()
    verdict.set_result(Answer(()))
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = http.Response.make(200, b"", headers)
    response.raw_content = gzip.compress(b'{"id":7}')
    assert held(verdict).answer(response) == as_event(b'{"id":7}')
    response.raw_content = b"no gzip"
    assert b"no result" in held(verdict).answer(response)


def test_a_line_break_in_a_message_starts_no_event_of_its_own() -> None:
    assert as_event(b'{"a":\r\n1,\r"b":\n2}') == b'event: message\ndata: {"a":\ndata: 1,\ndata: "b":\ndata: 2}\n\n'


@pytest.mark.parametrize(
    ("version", "named"), [("HTTP/1.1", "transfer-encoding"), ("HTTP/1.0", "connection"), ("HTTP/2.0", None)]
)
def test_the_head_is_framed_as_the_clients_version_has_it(version: str, named: str | None) -> None:
    request = flow().request
    request.http_version = version
    fields = {name.lower() for name in begun_head(request).headers}
    assert fields & {"transfer-encoding", "connection", "content-length"} == ({named} if named else set())


@pytest.mark.parametrize(
    ("accept", "takes"),
    [("text/event-stream", True), ("application/json, Text/Event-Stream;q=0.5", True), ("application/json", False)],
)
def test_only_who_accepts_events_is_sent_them(accept: str, takes: bool) -> None:
    assert takes_events(flow(accept)) is takes
