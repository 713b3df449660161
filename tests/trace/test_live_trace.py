"""The watch, with a trace that is written by hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from array import array
from collections.abc import AsyncIterator
from fcntl import ioctl
from termios import FIONREAD
from typing import Any

import pytest

from proxy.core.model import Call, Context, Decision, InFlightCall, JsonObject, Kind, Message, Outcome, Principal
from proxy.trace import attribute
from proxy.trace import live_trace as module
from proxy.trace.live_trace import LiveTrace
from proxy.trace.tracer import TracePipe
from tests.support.timeouts import PATIENCE


class FakeServer:
    """A server of which there are only the pipes."""

    def __init__(self) -> None:
        self.pid = 0
        self.stdin = os.pipe()
        self.stdout = os.pipe()
        self.stdout_inode = os.fstat(self.stdout[0]).st_ino
        self.given = 0

    def has_read(self) -> bool:
        unread = array("i", [0])
        ioctl(self.stdin[1], FIONREAD, unread)
        return unread[0] < self.given

    def close(self) -> None:
        for end in (*self.stdin, *self.stdout):
            os.close(end)


class World:
    def __init__(self) -> None:
        self.server = FakeServer()
        self.channel = TracePipe()
        self.reports: list[tuple[str | None, JsonObject]] = []
        self.watch = LiveTrace(self.channel, self._report)
        self.strace = os.open(self.channel.path, os.O_WRONLY)
        self.watch.begin(self.server)  # type: ignore[arg-type]
        self.offset = 0

    def _report(self, in_flight: InFlightCall | None, detail: JsonObject) -> None:
        self.reports.append((in_flight.call_id if in_flight else None, detail))

    def trace(self, *calls: str, pid: int = 100) -> None:
        for call in calls:
            os.write(self.strace, f"{pid}  {time.time():.6f} {call}\n".encode())

    def ask(self, call_id: str, method: str = "tools/call", **arguments: Any) -> InFlightCall:
        context = Context(Principal("agent"), "server", transport="stdio", session="s")
        message = Message(Kind.REQUEST, {"params": {"name": "t", "arguments": arguments}}, method, call_id)
        call = Call(method, "server", "agent", "t", arguments)
        decision = Decision(Outcome.ALLOW, "default")
        in_flight = InFlightCall(call_id, message, context, call, decision, time.time(), time.time())
        self.watch.request_sent(message, in_flight)
        self.server.given += os.write(self.server.stdin[1], b"a request")
        return in_flight

    def answer(self, in_flight: InFlightCall) -> None:
        inode = self.server.stdout_inode
        self.trace(f'write(1<pipe:[{inode}]>, "answer"..., 50) = 50')
        in_flight.closed = True
        self.watch.response_read(self.offset, self.offset + 50)
        self.offset += 50

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.reports) < count:
                await asyncio.sleep(0.005)

    async def begun(self) -> None:
        """Let the server read, and wait until the watch has seen it: what comes before is its start."""
        os.read(self.server.stdin[0], 1)
        assert self.watch._attributor is not None
        async with asyncio.timeout(PATIENCE):
            while self.watch._attributor.awaits_first_read:
                await asyncio.sleep(0.005)

    async def settled(self) -> None:
        """Wait until the watch has read what was written."""
        async with asyncio.timeout(PATIENCE):
            while not self.watch._progress:
                await asyncio.sleep(0.005)

    def leave(self) -> None:
        if self.strace >= 0:
            os.close(self.strace)
            self.strace = -1

    async def end(self) -> None:
        self.leave()
        await self.watch.end()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(module, "DRAIN_SECONDS", PATIENCE)
    made = World()
    yield made
    made.leave()
    made.watch._stop()
    with contextlib.suppress(OSError):
        made.channel.close()
    made.server.close()


OPEN = 'openat(AT_FDCWD</work>, "{0}", O_RDONLY) = 3<{0}>'


async def test_a_burst_whose_trace_is_read_late_is_reported_with_its_calls(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    monkeypatch.setattr(attribute, "MAX_OPEN", 3)
    world.watch._full = 6
    first = world.ask("first")
    await world.begun()
    world.answer(first)
    names = [f"call-{number}" for number in range(40)]
    for name in names:  # without a turn of the loop: nothing of the trace is read meanwhile
        in_flight = world.ask(name)
        world.trace(OPEN.format(f"/data/{name}"))
        world.answer(in_flight)
    await world.until(len(names))
    seen = {name: [entry["path"] for entry in detail["observations"]] for name, detail in world.reports}
    assert seen == {name: [f"/data/{name}"] for name in names}


async def test_calls_that_are_over_are_forgotten_beside_one_that_is_never_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    world.watch._full = 6
    world.ask("never")
    await world.begun()
    for number in range(100):
        world.answer(world.ask(str(number)))
        await asyncio.sleep(0.005)  # in which the trace is read now and then
    assert "never" in world.watch._calls
    assert len(world.watch._calls) < 50


async def test_what_a_call_did_is_reported_when_it_is_over(world: World) -> None:
    in_flight = world.ask("a")
    await world.begun()
    world.trace(OPEN.format("/etc/hostname"))
    world.answer(in_flight)
    await world.until(1)
    ((call_id, detail),) = world.reports
    assert call_id == "a"
    assert [entry["path"] for entry in detail["observations"]] == ["/etc/hostname"]


async def test_what_comes_before_the_first_request_is_start_up(world: World) -> None:
    world.trace('execve("/bin/x", ["x"], 0x7f /* 3 vars */) = 0', OPEN.format("/lib/a"))
    opening = world.ask("i", "initialize")
    world.answer(opening)
    await world.begun()
    world.trace(OPEN.format("/etc/b"))
    await world.end()
    assert [(call_id, detail["phase"]) for call_id, detail in world.reports] == [(None, "startup"), (None, "ambient")]
    assert world.watch.started


async def test_the_first_request_begins_when_it_is_read(world: World) -> None:
    in_flight = world.ask("a")
    world.trace(OPEN.format("/lib/import"))
    await asyncio.sleep(0.05)
    await world.begun()
    world.trace(OPEN.format("/etc/mine"))
    world.answer(in_flight)
    await world.end()
    assert [(call_id, detail["phase"]) for call_id, detail in world.reports] == [(None, "startup"), ("a", "call")]


@pytest.mark.parametrize("size", [1, 5, 99])
async def test_a_first_call_that_was_answered_before_anybody_looked_has_what_it_did(world: World, size: int) -> None:
    world.trace(OPEN.format("/lib/import"))
    in_flight = world.ask("a")
    # All in one step of the loop. A server may keep a byte unread, so that it seems not to know its call.
    os.read(world.server.stdin[0], size)
    world.trace(OPEN.format("/etc/mine"))
    world.answer(in_flight)
    await world.end()
    told = {entry["path"]: call for call, detail in world.reports for entry in detail.get("observations", [])}
    assert told == {"/lib/import": None, "/etc/mine": "a"}


async def test_an_answer_waits_for_what_was_done_in_a_first_call(world: World) -> None:
    judged: list[tuple[str | None, list[str]]] = []
    world.watch.judge = lambda seen, _, calls: judged.append((seen.path, [each.call_id for each in calls]))
    world.ask("a")
    os.read(world.server.stdin[0], 1)
    world.trace(OPEN.format("/etc/mine"), f'write(1<pipe:[{world.server.stdout_inode}]>, "answer"..., 50) = 50')
    assert await world.watch.settle(50)
    assert judged == [("/etc/mine", ["a"])]


async def test_a_line_that_a_server_writes_before_it_reads_does_not_end_its_start(world: World) -> None:
    world.ask("a")
    world.trace(f'write(1<pipe:[{world.server.stdout_inode}]>, "banner"..., 50) = 50', OPEN.format("/lib/import"))
    assert await world.watch.settle(50)
    world.watch.response_read(0, 50)
    await world.begun()
    world.trace(OPEN.format("/etc/mine"))
    await world.end()
    told = {entry["path"]: call for call, detail in world.reports for entry in detail.get("observations", [])}
    assert told == {"/lib/import": None, "/etc/mine": "a"}


async def test_a_storm_makes_one_report_and_counts_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", PATIENCE)
    in_flight = world.ask("a")
    await world.begun()
    loop = asyncio.get_running_loop()
    lines = "".join(f"100  {time.time():.6f} {OPEN.format(f'/data/{n}')}\n" for n in range(20_000)).encode()
    await loop.run_in_executor(None, _write_all, world.strace, lines)
    world.answer(in_flight)
    await world.until(1)
    ((_, detail),) = world.reports
    assert len(detail["observations"]) == 40
    assert detail["more"] == {"fs.read": 19_960}


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


async def test_lines_that_cannot_be_read_are_counted_and_told(world: World) -> None:
    world.trace(OPEN.format("/a"))
    os.write(world.strace, b"no line of strace's\nhalf a li")
    await world.end()
    assert world.reports[-1] == (None, {"phase": "end", "unparsed_lines": 2, "dropped": 0})


async def test_the_end_of_the_trace_is_told(world: World) -> None:
    assert not world.watch.ended.is_set()
    world.trace(OPEN.format("/a"))
    world.leave()
    await asyncio.wait_for(world.watch.ended.wait(), PATIENCE)


async def test_a_failure_inside_counts_as_the_end_of_the_trace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(world.watch._normaliser, "take", fail)
    world.trace(OPEN.format("/a"))
    await asyncio.wait_for(world.watch.ended.wait(), PATIENCE)


async def test_the_pipe_has_no_name_once_lines_come(world: World) -> None:
    world.trace(OPEN.format("/a"))
    await world.settled()
    assert not world.channel.path.exists()


async def test_a_program_that_could_not_be_executed_is_told_apart(world: World) -> None:
    world.trace('execve("/bin/x", ["x"], 0x7f /* 3 vars */) = -1 ENOEXEC (Exec format error)')
    await world.end()
    assert (world.watch.started, world.watch.start_error) == (False, "ENOEXEC")


async def test_long_calls_are_reported_as_they_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(module, "HELD_SECONDS", 0.05)
    world.ask("a")
    await world.begun()
    world.trace(OPEN.format("/a"))
    await world.until(1)
    assert world.reports[0][0] == "a"


async def test_a_server_that_never_opened_the_pipe_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", PATIENCE)
    channel = TracePipe()
    watch = LiveTrace(channel, lambda *_: None)
    server = FakeServer()
    watch.begin(server)  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE / 2):
        await watch.end()
    assert not channel.path.exists()
    server.close()


class Judged(World):
    """A watch whose acts are judged."""

    def __init__(self, seconds: float = PATIENCE) -> None:
        super().__init__()
        self.watch._settle_seconds = seconds
        self.judged: list[tuple[str | None, list[str]]] = []
        self.watch.judge = lambda seen, _, calls: self.judged.append((seen.path, [call.call_id for call in calls]))
        self.stdout = f"1<pipe:[{os.fstat(self.server.stdout[0]).st_ino}]>"


@contextlib.asynccontextmanager
async def judged(seconds: float = PATIENCE) -> AsyncIterator[Judged]:
    world = Judged(seconds)
    try:
        world.ask("a")
        await world.begun()
        yield world
    finally:
        with contextlib.suppress(OSError):
            os.close(world.strace)
        await world.watch.end()
        world.server.close()


OPENED = 'openat(AT_FDCWD</>, "{0}", O_RDONLY) = 3<{0}>'


async def test_settling_waits_for_the_write_and_judges_what_came_before() -> None:
    async with judged() as world:
        settling = asyncio.create_task(world.watch.settle(50))
        await asyncio.sleep(0)
        world.trace(OPENED.format("/one"), f'write({world.stdout}, "x", 20) = 20', OPENED.format("/two"))
        await asyncio.sleep(0)
        assert not settling.done()
        world.trace(f'write({world.stdout}, "x", 30) = 30', OPENED.format("/after"))
        assert await settling
        assert world.judged == [("/one", ["a"]), ("/two", ["a"])]


async def test_a_write_that_does_not_come_in_time_settles_nothing() -> None:
    async with judged(0.01) as world:
        assert not await world.watch.settle(50)
        world.watch._settle_seconds = PATIENCE
        world.trace(f'write({world.stdout}, "x", 50) = 50')
        assert await world.watch.settle(50)


@pytest.mark.parametrize(
    ("line", "doubts"),
    [
        ('openat(AT_FDCWD</>, "/proc/self/fd/1", O_RDONLY|O_CLOEXEC) = 5<{pipe}>', True),
        ('openat(AT_FDCWD</>, "/proc/self/fd/1", O_RDWR) = 5<{pipe}>', True),
        ('open("/dev/stdout", O_RDONLY) = 5<{pipe}>', True),
        ('openat(AT_FDCWD</>, "/dev/stdout", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 5<{pipe}>', False),
        ('openat(AT_FDCWD</>, "/proc/self/fd/9", O_RDONLY) = 5<pipe:[1]>', False),
        ("this is no line of strace's", True),
    ],
)
async def test_what_cannot_be_counted_on_is_doubted(line: str, doubts: bool) -> None:
    async with judged() as world:
        world.trace(line.format(pipe=world.stdout[2:-1]), f'write({world.stdout}, "x", 50) = 50')
        assert await world.watch.settle(50) is not doubts


async def test_a_trace_that_ends_settles_nothing() -> None:
    async with judged() as world:
        settling = asyncio.create_task(world.watch.settle(50))
        await asyncio.sleep(0)
        os.close(world.strace)
        assert not await settling


async def _start(world: Judged) -> None:
    world.trace('execve("/s", ["s"], 0x1) = 0')
    async with asyncio.timeout(PATIENCE):
        while not world.watch.started:
            await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_lines_wait_in_the_pipe_while_a_call_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "YOUNG_SECONDS", PATIENCE)
    async with judged() as world:
        await _start(world)
        world.trace(OPENED.format("/young"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert "/young" not in [path for path, _ in world.judged]
        monkeypatch.setattr(module, "ROOM", 0)
        await _until_judged(world, "/young")


async def test_where_answers_wait_for_their_trace_it_is_read_while_the_call_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "YOUNG_SECONDS", 2 * PATIENCE)
    async with judged() as world:
        world.watch.holds_answers = lambda: True
        await _start(world)
        world.trace(OPENED.format("/young"))
        await _until_judged(world, "/young")


async def _until_judged(world: Judged, path: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (path, ["a"]) not in world.judged:
            await asyncio.sleep(0)


async def test_writes_that_wake_a_thread_are_passed_over(world: World) -> None:
    in_flight = world.ask("a")
    await world.begun()
    wake = r'write(16<anon_inode:[eventfd]>, "\1\0\0\0\0\0\0\0", 8) = 8'
    world.trace(*[wake] * 100, OPEN.format("/data"), *[wake] * 100)
    world.answer(in_flight)
    await world.until(1)
    ((_, detail),) = world.reports
    assert [each["path"] for each in detail["observations"]] == ["/data"]
    assert world.watch._reader.lines == 2
