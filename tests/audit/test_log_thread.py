"""What shipper, sinks and transparency log have in common: pauses, and a thread that ends in two steps."""

from __future__ import annotations

import asyncio
import threading

import pytest

from proxy.audit import log_thread
from proxy.audit.log_thread import LogThread, Retries, rest, work_until
from tests.support.timeouts import PATIENCE


def test_pauses_grow_to_a_bound_and_begin_anew_once_it_works() -> None:
    retries = Retries(1.0, 4.0)
    for longest in (1.0, 2.0, 4.0, 4.0):
        assert longest / 2 <= retries.pause() <= longest
    assert not retries.worked()
    assert retries.pause() <= 1.0


def test_a_problem_is_new_until_it_is_the_same_and_after_it_worked() -> None:
    retries = Retries()
    assert [retries.failed(problem) for problem in ("a", "a", "b", "a")] == [True, False, True, True]
    assert retries.problem == "a"
    assert retries.worked()
    assert not retries.worked()
    assert retries.failed("a")


async def test_a_rest_ends_with_its_time_or_with_the_stop() -> None:
    stop = asyncio.Event()
    await rest(stop, 0.0)
    stop.set()
    await rest(stop, 10 * PATIENCE)


async def test_work_that_does_not_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread, "LAST_SECONDS", 0.01)
    stop, cancelled = asyncio.Event(), asyncio.Event()
    stop.set()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await work_until(stop, hang())
    assert cancelled.is_set()


class Worker(LogThread):
    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.steps: list[str] = []
        self.began = threading.Event()
        super().__init__("test-worker")

    async def run(self) -> None:
        self.began.set()
        if self.fails:
            raise ValueError("broken")
        await self._stop.wait()
        self.steps.append("let go")
        self._stopped.set()
        await self._finish.wait()
        self.steps.append("ended")


def test_a_thread_lets_go_and_then_ends() -> None:
    worker = Worker()
    worker.stop()
    assert worker.steps == ["let go"]
    worker.finish()
    assert worker.steps == ["let go", "ended"]
    assert not worker._thread.is_alive()


def test_a_thread_that_failed_holds_up_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    worker = Worker(fails=True)
    assert worker.began.wait(PATIENCE)
    worker.stop()
    worker.finish()
    assert not worker._thread.is_alive()
    assert "events stay in the local log" in capsys.readouterr().out
