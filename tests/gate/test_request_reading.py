"""Where and how the gate has a body read: large ones aside, lines where lines are read."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from dataclasses import replace
from typing import Any, Literal

import pytest

from proxy.core.model import Answer, Forward, Pass, Reject
from proxy.gate import request as gate_module
from proxy.wire.body import ParsedBody, read_body
from tests.support.gate_fixture import BOOM, CONTEXT, World, call
from tests.support.timeouts import PATIENCE

LARGE = call(arguments={"x": "y" * gate_module.READ_AT_ONCE}, request_id=8)
BODY = json.dumps(call()).encode()


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which bodies were read."""
    threads: list[threading.Thread] = []

    def read(body: bytes, **more: Any) -> ParsedBody:
        threads.append(threading.current_thread())
        return read_body(body, **more)

    monkeypatch.setattr(gate_module, "read_body", read)
    return threads


async def test_a_small_body_is_read_at_once(readers: list[threading.Thread]) -> None:
    assert isinstance(await World().inspect(call()), Forward)
    assert readers == [threading.main_thread()]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(LARGE).encode(), []),
        (gzip.compress(BODY, mtime=0), [("Content-Encoding", "gzip")]),
        (gzip.compress(b"[]", mtime=0), []),
    ],
    ids=["large", "encoded", "encoded without saying so"],
)
async def test_what_may_take_long_is_read_in_another_thread(
    body: bytes, headers: list[tuple[str, str]], readers: list[threading.Thread]
) -> None:
    assert isinstance(await World().inspect(body, headers), Forward | Pass)
    assert threading.main_thread() not in readers
    assert len(readers) == 1


@pytest.mark.parametrize("error", [BOOM, RecursionError(), MemoryError()], ids=repr)
async def test_a_failure_in_another_thread_refuses(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **more: Any) -> ParsedBody:
        raise error

    monkeypatch.setattr(gate_module, "read_body", fail)
    world = World()
    assert isinstance(await world.inspect(LARGE), Reject)
    assert [event.reason for event in world.events] == ["internal_error"]


async def test_a_small_message_is_decided_while_a_large_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = threading.Event(), threading.Event()

    def read(body: bytes, **more: Any) -> ParsedBody:
        if len(body) > gate_module.READ_AT_ONCE:
            begun.set()
            assert done.wait(PATIENCE)
        return read_body(body, **more)

    monkeypatch.setattr(gate_module, "read_body", read)
    world = World()
    large = asyncio.create_task(world.inspect(LARGE))
    assert await asyncio.to_thread(begun.wait, 10)
    assert isinstance(await world.inspect(call()), Forward)
    assert not large.done()
    done.set()
    assert isinstance(await large, Forward)


async def test_after_the_end_a_large_body_is_refused() -> None:
    world = World()
    world.gate.close()
    assert isinstance(await world.inspect(LARGE), Reject)


@pytest.mark.parametrize("transport", ["websocket", "stdio", "http"])
async def test_a_message_after_a_line_of_garbage_is_refused(transport: Literal["websocket", "stdio", "http"]) -> None:
    world = World()
    verdict = await world.inspect(b"hello\n" + BODY, context=replace(CONTEXT, transport=transport))
    assert isinstance(verdict, Answer)
    assert [event.reason for event in world.events] == ["not_json"]


async def test_text_that_quotes_a_message_passes() -> None:
    assert isinstance(await World().inspect(b"hello\nPOST " + BODY), Pass)


async def test_ordinary_lines_pass_where_lines_are_read() -> None:
    assert isinstance(await World().inspect(b"hello\nworld", context=replace(CONTEXT, transport="websocket")), Pass)
