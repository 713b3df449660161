"""How a stream in the lane ends. That it does what the layers do is shown in test_lane.py."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy.proxy import events

from addons.lane import stream
from addons.lane.stream import QUEUED_BYTES, LaneStream
from proxy.gate.reflections import Reflections

CLIENT, SERVER = SimpleNamespace(name="client"), SimpleNamespace(name="server")
EVENT = b"data: {}\n\n"


class Rewriter:
    """Passes events on as they are; fails where they say so."""

    waiting, has_marks = 0, False

    def __init__(self, *_: Any) -> None: ...

    def feed(self, data: bytes) -> list[bytes]:
        if b"fail" in data:
            raise ValueError("an event that cannot be rewritten")
        return [data]


class FakeLane:
    """Notes what a stream does."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.current: Any = None
        self.sent = b""
        self.ended = self.flushed = 0
        self.aborted: list[str] = []
        self.closed: list[str] = []
        self.handler: Any = SimpleNamespace(
            client=CLIENT,
            transports=[CLIENT, SERVER],
            timeout_watchdog=SimpleNamespace(register_activity=lambda: None),
            abort=lambda connection: self.aborted.append(connection.name),
            close_connection=lambda connection: self.closed.append(connection.name),
        )

    def write_client(self, data: bytes) -> None:
        self.sent += data

    def end_call(self) -> None:
        self.ended += 1
        self.current = None

    def flush(self) -> None:
        self.flushed += 1


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> FakeLane:
    monkeypatch.setattr(stream, "EventStream", Rewriter)
    return FakeLane()


@pytest.fixture
def outcomes() -> list[str]:
    return []


@pytest.fixture
def streaming(lane: FakeLane, outcomes: list[str]) -> LaneStream:
    gate = SimpleNamespace(
        responses=SimpleNamespace(abandon=lambda _, why: outcomes.append(why)), reflections=Reflections(None)
    )
    parts: Any = SimpleNamespace(
        limits=SimpleNamespace(message_bytes=1000),
        announcer=SimpleNamespace(
            opened=lambda *_: outcomes.append("opened"), closed=lambda _: outcomes.append("closed")
        ),
        http=SimpleNamespace(responses=SimpleNamespace(stream_ended=lambda *_: outcomes.append("whole"))),
        gate=gate,
    )
    call: Any = SimpleNamespace(
        template=SimpleNamespace(server=SERVER, tls=None),
        judged=SimpleNamespace(context=SimpleNamespace(server="files", principal=SimpleNamespace(agent="a"))),
        verdict=SimpleNamespace(in_flight=None),
    )
    lane.current = call
    return LaneStream(lane, parts, call, None, "lane 1")  # type: ignore[arg-type]


def data(connection: Any, what: bytes) -> events.DataReceived:
    return events.DataReceived(connection, what)


def chunk(what: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(what), what)


def test_a_stream_that_ends_leaves_the_lane_ready(streaming: LaneStream, lane: FakeLane, outcomes: list[str]) -> None:
    assert streaming.take(data(SERVER, chunk(EVENT) + b"0\r\n\r\n"))
    assert lane.sent == chunk(EVENT) + b"0\r\n\r\n"
    assert (outcomes, lane.ended, lane.aborted, lane.closed) == (["opened", "closed", "whole"], 1, [], [])


def test_a_server_that_sends_more_than_its_stream_is_closed(streaming: LaneStream, lane: FakeLane) -> None:
    streaming.take(data(SERVER, chunk(EVENT) + b"0\r\n\r\nHTTP/1.1 200 OK"))
    assert (lane.ended, lane.closed) == (1, ["server"])


@pytest.mark.parametrize("bad", [b"zz\r\n", chunk(b"data: fail\n\n")], ids=["no chunk", "an event that fails"])
def test_what_is_odd_cuts_both_connections(
    streaming: LaneStream, lane: FakeLane, outcomes: list[str], bad: bytes
) -> None:
    streaming.take(data(SERVER, chunk(EVENT)))
    streaming.take(data(SERVER, bad))
    assert b"0\r\n\r\n" not in lane.sent
    assert (outcomes, lane.aborted) == (["opened", "closed", "upstream_error"], ["server", "client"])


def test_a_connection_that_ends_cuts_the_stream(streaming: LaneStream, lane: FakeLane) -> None:
    assert not streaming.take(events.ConnectionClosed(SERVER))  # type: ignore[arg-type]
    assert lane.aborted == ["server", "client"]


def test_what_a_client_sends_meanwhile_waits_and_is_bounded(streaming: LaneStream, lane: FakeLane) -> None:
    assert streaming.take(data(CLIENT, b"POST "))
    assert (len(lane.queue), lane.aborted) == (1, [])
    streaming.take(data(CLIENT, b"x" * QUEUED_BYTES))
    assert lane.aborted == ["server", "client"]
