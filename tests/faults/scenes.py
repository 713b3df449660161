"""Faults, one scene each: a real proxy under load, what breaks, and the count of what is left in the end.

Acknowledged is a call whose answer came from the server through the proxy. In the end its decision must be in the
store, once; so must that of every call that the server executed, answered or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proxy.audit.local_log_files import log_states
from tests.faults.load import Load, Seen, marks, wait_until
from tests.support.harness import (
    Interlock,
    ServerHandle,
    free_port,
    interlock_cli,
    start_interlock,
    start_python_server,
)
from tests.support.otlp_receiver import Answer, Request, receiver
from tests.support.postgres import Postgres
from tests.support.postgres_cutter import Cutter
from tests.support.trail_reader import stored_events

POLICY = "version: 1\ndefault: allow\n"
DISK_BYTES = 64 << 20  # more than the calls of a scene take
DRAIN_LIMIT = 120.0
STEP_LIMIT = 30.0
CALL_LIMIT = 0.1


@dataclass(frozen=True)
class Counts:
    """What a scene came to."""

    name: str
    acknowledged: int
    executed: int
    refused: int
    unanswered: int
    stored: int
    lost: int
    duplicated: int
    chain_breaks: int
    note: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled or broken, and there was something to lose."""
        return self.acknowledged > 0 and not (self.lost or self.duplicated or self.chain_breaks)


@dataclass
class Scene:
    """A server, a state folder and a store, and everything that clients saw over several lives of a proxy."""

    name: str
    folder: Path
    server: ServerHandle
    database_url: str | None
    shipped_to: str | None = None
    """Where the proxy believes the database to be, if that is not the database itself."""
    seen: Seen = field(default_factory=Seen)
    marks: Iterator[int] = field(default_factory=marks)
    program: tuple[str, ...] = ("proxy.cli",)
    settings: dict[str, Any] | None = None

    @property
    def flags(self) -> list[str]:
        url = self.shipped_to or self.database_url
        return ["--database-url", url] if url else []

    @contextlib.contextmanager
    def proxy(self) -> Iterator[Interlock]:
        with start_interlock(
            self.folder, policy=POLICY, flags=self.flags, program=self.program, settings=self.settings
        ) as running:
            yield running

    @contextlib.contextmanager
    def load(self, proxy: Interlock) -> Iterator[Seen]:
        with Load(proxy.port, self.server.port, self.marks, self.seen):
            yield self.seen

    def reach(self, more: int) -> None:
        """Wait until so many more calls are acknowledged."""
        wanted = len(self.seen.acknowledged) + more
        wait_until(lambda: len(self.seen.acknowledged) >= wanted, STEP_LIMIT + more * CALL_LIMIT)

    def drain(self, proxy: Interlock) -> None:
        """Wait until everything is in the store."""
        wait_until(lambda: not any(state.backlog for state in log_states(proxy.state_dir).values()), DRAIN_LIMIT)

    def finish(self, note: str = "") -> Counts:
        """Start the proxy once more, let it move what is left, and count."""
        self.shipped_to, self.program = None, ("proxy.cli",)
        with self.proxy() as proxy:
            self.drain(proxy)
        return self.count(note)

    def count(self, note: str = "") -> Counts:
        state_dir = self.folder / "state"
        found = [event for event in stored_events(state_dir, self.database_url) if event["kind"] == "decided"]
        stored = Counter(event["arguments"]["mark"] for event in found if "mark" in (event.get("arguments") or {}))
        executed = {run["arguments"]["mark"] for run in self.server.executions()}
        allowed = {event["arguments"]["mark"] for event in found if event.get("decision") == "allow"}
        return Counts(
            name=self.name,
            acknowledged=len(self.seen.acknowledged),
            executed=len(executed),
            refused=self.seen.refused,
            unanswered=self.seen.unanswered,
            stored=len(stored),
            lost=len((self.seen.acknowledged | executed) - allowed),
            duplicated=sum(number - 1 for number in stored.values()),
            chain_breaks=self._chain_breaks(state_dir),
            note=note,
        )

    def _chain_breaks(self, state_dir: Path) -> int:
        flags = ["--database-url", self.database_url] if self.database_url else []
        done = interlock_cli("audit", "verify", "--json", "--state-dir", str(state_dir), *flags)
        assert done.stdout, done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        return len(summary["problems"]) + int(summary["broken_checkpoints"]) + len(summary["unsigned"])


@contextlib.contextmanager
def scene(name: str, folder: Path, database_url: str | None) -> Iterator[Scene]:
    """Set a scene with a server of its own."""
    with start_python_server("lenient", folder / "server") as server:
        yield Scene(name, folder, server, database_url)


def killed(folder: Path, database_url: str | None, *, seconds: float, calls: int) -> Counts:
    """SIGKILL the proxy under load, start it again, and again, for so long and twice at least."""
    name = f"SIGKILL loop, {'Postgres' if database_url else 'embedded store'}"
    kills, end = 0, time.monotonic() + seconds
    with scene(name, folder, database_url) as set_up:
        while kills < 2 or time.monotonic() < end:
            with set_up.proxy() as proxy, set_up.load(proxy):
                set_up.reach(calls)
                proxy.process.kill()
                proxy.process.wait(STEP_LIMIT)
                proxy.stopped = True
                kills += 1
        return set_up.finish(f"{kills} kills")


def outage(folder: Path, postgres: Postgres, *, seconds: float, calls: int) -> Counts:
    """Stop Postgres at once and start it again while calls go on, for so long and once at least."""
    stops, end = 0, time.monotonic() + seconds
    with scene("Postgres immediate stop", folder, postgres.new_database()) as set_up:
        with set_up.proxy() as proxy, set_up.load(proxy):
            while not stops or time.monotonic() < end:
                set_up.reach(calls)
                postgres.halt()
                stops += 1
                set_up.reach(calls)  # an outage of the store is none of the proxy
                postgres.start()
                wait_until(lambda: _moves(proxy), DRAIN_LIMIT)
        return set_up.finish(f"{stops} stops")


def cuts(folder: Path, database_url: str, *, times: int, calls: int) -> Counts:
    """Cut the line to Postgres at a commit, before it is passed on and after it was carried out."""
    with scene("connection cuts mid-batch", folder, database_url) as set_up:
        done = 0
        for how in ("before", "after"):
            with _cutting(database_url, how, times) as cutter:
                set_up.shipped_to = cutter.url
                with set_up.proxy() as proxy, set_up.load(proxy):
                    set_up.reach(calls)
                    wait_until(lambda cutter=cutter: cutter.cuts >= times, DRAIN_LIMIT)
                done += cutter.cuts
        return set_up.finish(f"{done} cuts")


def disk_full(folder: Path, *, times: int, calls: int) -> Counts:
    """Fill the disk that the state folder is on under load, make room, and again; the proxy goes on by itself."""
    state = folder / "state"
    state.mkdir(parents=True)
    with _small_disk(state), scene("disk full", folder, None) as set_up:
        with set_up.proxy() as proxy, set_up.load(proxy) as seen:
            for _ in range(times):
                set_up.reach(calls)
                before = seen.refused
                with _filled(state / "ballast"):
                    wait_until(lambda before=before: seen.refused > before + calls, STEP_LIMIT)
            set_up.reach(calls)
            assert seen.reasons == {"audit_unavailable"}, seen.reasons
        return set_up.finish(f"full {times} times")


def clock_jumps(folder: Path, database_url: str, *, calls: int) -> Counts:
    """Let the events' clock jump by hours, days and decades, to and fro."""
    with scene("clock jumps", folder, database_url) as set_up:
        set_up.program = ("tests.faults.jumping",)
        with set_up.proxy() as proxy, set_up.load(proxy):
            set_up.reach(calls)
        return set_up.finish()


TROUBLES = (Answer(503, headers={"Retry-After": "1"}), Answer(429), Answer(404), None)


def collector(folder: Path, *, calls: int, troubles: Sequence[Answer | None] = TROUBLES) -> Counts:
    """Export to a collector that is gone, busy, wrong and silent by turns, and kill the proxy: all arrives at last.

    No call may be refused for it.
    """
    port = free_port()
    with scene("OTLP collector in trouble", folder, None) as set_up:
        settings = {"kind": "otlp", "endpoint": f"http://127.0.0.1:{port}", "timeout": 2}
        set_up.settings = {"sinks": [settings]}
        with set_up.proxy() as proxy:
            with set_up.load(proxy) as seen:
                set_up.reach(calls)
            for trouble in troubles:
                with receiver(port, _troubled(trouble)) as busy:
                    with set_up.load(proxy):
                        set_up.reach(calls)
                    wait_until(lambda busy=busy: busy.asked > 0, DRAIN_LIMIT)
            assert seen.refused == 0, seen.reasons
            proxy.process.kill()
            proxy.process.wait(STEP_LIMIT)
            proxy.stopped = True
        with receiver(port) as healthy:
            counts = set_up.finish()
            stored = {event["event_id"] for event in stored_events(folder / "state")}
            with set_up.proxy():
                wait_until(lambda: stored <= healthy.event_ids(), DRAIN_LIMIT)
        return replace(counts, note=f"{len(stored)} events exported")


def _troubled(trouble: Answer | None) -> Callable[[Request], Answer]:
    return lambda _: trouble or _late()


def _late() -> Answer:
    time.sleep(4)  # longer than the proxy waits
    return Answer(500)


def can_mount(folder: Path) -> bool:
    """Return whether a small disk can be made here."""
    try:
        with _small_disk(folder):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def _moves(proxy: Interlock) -> bool:
    return all(state.problem is None for state in log_states(proxy.state_dir).values())


@contextlib.contextmanager
def _filled(path: Path) -> Iterator[None]:
    """Leave no room on a disk for as long as the block lasts."""
    with path.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(1 << 12)):
                pass
        yield
    path.unlink()


@contextlib.contextmanager
def _small_disk(path: Path) -> Iterator[None]:
    options = f"size={DISK_BYTES},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


RUN = b"\x00__asyncpg_stmt_"  # a statement is run: most are transactions of their own


@contextlib.contextmanager
def _cutting(database_url: str, how: str, times: int) -> Iterator[Cutter]:
    """Run a cutter in a thread of its own: the one that asks is busy waiting."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run[T](work: Callable[[], T]) -> T:
        return asyncio.run_coroutine_threadsafe(work(), loop).result(STEP_LIMIT)  # type: ignore[arg-type, return-value]

    cutter = Cutter(database_url, how, word=RUN, times=times)  # type: ignore[arg-type]
    run(cutter.__aenter__)
    try:
        yield cutter
    finally:
        run(cutter.__aexit__)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STEP_LIMIT)
        loop.close()
