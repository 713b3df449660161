"""How the proxy is, as its supervisor sees it: alive, ready, and in numbers."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib import metadata
from typing import TYPE_CHECKING, Final, Protocol

from proxy.audit.backlog import read_backlog
from proxy.audit.local_log_files import log_bytes
from proxy.metrics.http_server import Reply
from proxy.metrics.prometheus import CONTENT_TYPE, expose, gauge
from proxy.system.package_data import version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from proxy.audit.backlog import Backlog
    from proxy.config import Settings
    from proxy.metrics.counters import Counters
    from proxy.policy.reloader import LivePolicy
    from proxy.runtime.worker_process import WorkerProcess, WorkerStatus

SILENT_SECONDS: Final = 15.0
"""A worker beats every second; on a machine with much to do, later."""
REMEMBERED_SECONDS: Final = 1.0
"""How long what was read from disk is good for: asking often costs nothing more."""


class Place(Protocol):
    """The place of one worker."""

    number: int
    worker: WorkerProcess | None
    restarts: int

    @property
    def serves(self) -> bool:
        """Whether there is a worker, and it said that it is ready."""
        ...


class HealthReport:
    """Answers for health and metrics."""

    def __init__(self, settings: Settings, counters: Counters, places: Sequence[Place], policy: LivePolicy) -> None:
        self._settings = settings
        self._counters = counters
        self._places = places
        self._policy = policy
        self._started = time.time()
        self._backlog: Backlog | None = None
        self._read_at = 0.0
        self.stopping = False

    def answer(self, path: str) -> Reply:
        """Answer a request for `path`."""
        pages: dict[str, Callable[[], Reply]] = {
            "/healthz": lambda: _reply(200, {"alive": True, "version": version()}),
            "/readyz": self._readiness,
            "/metrics": lambda: Reply(200, "\n".join(self._metrics()) + "\n", CONTENT_TYPE),
        }
        if path not in pages:
            return _reply(404, {"error": f"there is no such page; there are {', '.join(pages)}"})
        return pages[path]()

    def reports(self) -> list[WorkerStatus]:
        """Return what workers that serve said last."""
        return [place.worker.report for place in self._places if place.worker and place.worker.report]

    def _readiness(self) -> Reply:
        wrong = dict(self._wrong())
        return _reply(503 if wrong else 200, {"ready": not wrong, "not_ready": wrong})

    def _wrong(self) -> Iterator[tuple[str, str]]:
        """Return what is not as it should be, by its name."""
        if self.stopping:
            yield "stopping", "the proxy was told to stop"
        missing = [str(place.number) for place in self._places if not place.serves]
        if missing:
            yield "workers", f"{len(missing)} of {len(self._places)} do not serve (number {', '.join(missing)})"
        silent = [place.number for place in self._places if place.serves and self._is_silent(place.number)]
        if silent:
            yield "silent", f"no sign of life for {SILENT_SECONDS:.0f} s from worker {', '.join(map(str, silent))}"
        reports = self.reports()
        problem = next((report.policy_problem for report in reports if report.policy_problem), None)
        if problem is not None:
            yield "policy", f"the policy on disk is bad, and the one before it is in force: {problem}"
        problem = next((report.log_problem for report in reports if report.log_problem), None)
        if problem is not None:
            yield "audit_log", f"the audit log cannot be written: {problem}"
        backlog, limit = self._read_backlog(), self._settings.ready_lag
        if backlog.lag_seconds is not None and backlog.lag_seconds > limit:
            why = f" ({'; '.join(backlog.problems)})" if backlog.problems else ""
            lag = f"the oldest of {backlog.events} events waits for {backlog.lag_seconds:.0f} s"
            yield "store", f"{lag}, which is more than ready_lag ({limit:g} s){why}"

    def _is_silent(self, number: int) -> bool:
        return self._counters.silence(number) > SILENT_SECONDS

    def _read_backlog(self) -> Backlog:
        now = time.monotonic()
        if self._backlog is None or now > self._read_at + REMEMBERED_SECONDS:
            self._backlog = read_backlog(self._settings.state_dir, time.time())
            self._read_at = now
        return self._backlog

    def _metrics(self) -> Iterator[str]:
        yield from expose(self._counters.sums())
        backlog, serving = self._read_backlog(), sum(place.serves for place in self._places)
        yield from gauge("interlock_workers", "Workers that there should be.", [({}, len(self._places))])
        yield from gauge("interlock_workers_serving", "Workers that serve now.", [({}, serving)])
        restarts = sum(max(0, place.restarts) for place in self._places)
        yield from gauge("interlock_worker_restarts_total", "Workers that were replaced.", [({}, restarts)], "counter")
        yield from gauge("interlock_ready", "1 where /readyz says yes.", [({}, 0 if dict(self._wrong()) else 1)])
        yield from gauge("interlock_audit_backlog_events", "Events not in the store yet.", [({}, backlog.events)])
        lag = backlog.lag_seconds or 0.0
        yield from gauge("interlock_audit_lag_seconds", "How long the oldest of these has waited.", [({}, lag)])
        rejected = backlog.rejected
        yield from gauge("interlock_audit_rejected_events", "Events that the store does not take.", [({}, rejected)])
        size = log_bytes(self._settings.state_dir)
        yield from gauge("interlock_audit_log_bytes", "Size of the local logs on disk.", [({}, size)])
        policy = {"version": self._policy.current().version}
        yield from gauge("interlock_policy_info", "The policy in force.", [(policy, 1)])
        bad = any(report.policy_problem for report in self.reports())
        yield from gauge("interlock_policy_problem", "1 where the policy on disk is bad.", [({}, bad)])
        build = {"version": version(), "python": platform.python_version(), "mitmproxy": metadata.version("mitmproxy")}
        yield from gauge("interlock_build_info", "What runs.", [(build, 1)])
        yield from gauge("interlock_start_time_seconds", "When it was started.", [({}, self._started)])
        yield from gauge("interlock_resident_bytes", "Memory of each process.", list(self._memory()))

    def _memory(self) -> Iterator[tuple[dict[str, str], float]]:
        yield {"process": "supervisor"}, _resident(os.getpid())
        for place in self._places:
            if place.worker is not None:
                yield {"process": f"worker-{place.number}"}, _resident(place.worker.pid)


def _resident(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  asked for each second, and simple
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0.0


def _reply(status: int, value: dict[str, object]) -> Reply:
    return Reply(status, json.dumps(value) + "\n")
