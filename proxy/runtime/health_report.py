"""What the supervisor answers on /healthz, /readyz and /metrics."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib import metadata
from typing import TYPE_CHECKING, Final

from proxy.audit.backlog import Backlog, read_backlog
from proxy.audit.local_log_files import log_bytes
from proxy.metrics.http_server import Reply
from proxy.system.package_data import version
from proxy.system.terminal_text import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from proxy.config import Settings
    from proxy.metrics.counters import Counters
    from proxy.policy.reloader import LivePolicy
    from proxy.runtime.worker_process import WorkerSlot, WorkerStatus

# A worker sends a heartbeat every second; on a busy machine it may be late.
SILENT_SECONDS: Final = 15.0
# How long the backlog read from disk is reused: a client that polls fast must not cost disk reads.
REMEMBERED_SECONDS: Final = 1.0


class HealthReport:
    def __init__(self, settings: Settings, counters: Counters, slots: Sequence[WorkerSlot], policy: LivePolicy) -> None:
        self._settings = settings
        self._counters = counters
        self._slots = slots
        self._policy = policy
        self._started = time.time()
        self._backlog: Backlog | None = None
        self._read_at = 0.0
        self.stopping = False

    def answer(self, path: str) -> Reply:
        match path:
            case "/healthz":
                return _reply(200, {"alive": True, "version": version()})
            case "/readyz":
                wrong = dict(self._wrong())
                return _reply(503 if wrong else 200, {"ready": not wrong, "not_ready": wrong})
            case "/metrics":
                return self._metrics()
        return _reply(404, {"error": "not found; use /healthz, /readyz, /metrics"})

    def reports(self) -> list[WorkerStatus]:
        """Return the last status of each worker that serves."""
        return [slot.worker.report for slot in self._slots if slot.worker and slot.worker.report]

    def _wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each reason for not being ready: its name and a sentence."""
        if self.stopping:
            yield "stopping", "the proxy is stopping"
        if missing := [str(slot.number) for slot in self._slots if not slot.serves]:
            yield "workers", f"{len(missing)} of {len(self._slots)} do not serve (number {', '.join(missing)})"
        silent = [str(s.number) for s in self._slots if s.serves and self._counters.silence(s.number) > SILENT_SECONDS]
        if silent:
            yield "silent", f"no heartbeat for {SILENT_SECONDS:.0f} s from worker {', '.join(silent)}"
        reports = self.reports()
        if problem := next((report.policy_problem for report in reports if report.policy_problem), None):
            yield "policy", f"the policy on disk is invalid; the previous one stays in force: {problem}"
        if problem := next((report.log_problem for report in reports if report.log_problem), None):
            yield "audit_log", f"the audit log cannot be written: {problem}"
        if problem := next((report.store_problem for report in reports if report.store_problem), None):
            yield "two_phase", f"calls of two-phase rules are refused, since the store cannot be used: {problem}"
        backlog, limit = self._read_backlog(), self._settings.ready_lag
        if backlog.lag_seconds is not None and backlog.lag_seconds > limit:
            why = f" ({'; '.join(backlog.problems)})" if backlog.problems else ""
            lag = f"the oldest of {count(backlog.events, 'event')} waits for {backlog.lag_seconds:.0f} s"
            yield "store", f"{lag}, which is more than ready_lag ({limit:g} s){why}"

    def _read_backlog(self) -> Backlog:
        now = time.monotonic()
        if self._backlog is None or now > self._read_at + REMEMBERED_SECONDS:
            self._backlog = read_backlog(self._settings.state_dir, time.time())
            self._read_at = now
        return self._backlog

    def _metrics(self) -> Reply:
        from proxy.metrics.prometheus import CONTENT_TYPE, counted, expose  # noqa: PLC0415  at the first scrape

        return Reply(200, expose([*counted(self._counters), *self._gauges()]), CONTENT_TYPE)

    def _gauges(self) -> Iterator[Metric]:
        """Yield what is not counted but known when somebody asks."""
        from prometheus_client.metrics_core import CounterMetricFamily  # noqa: PLC0415

        from proxy.metrics.prometheus import gauge  # noqa: PLC0415

        restarts = sum(max(0, slot.restarts) for slot in self._slots)
        yield CounterMetricFamily("interlock_worker_restarts", "Workers that were replaced.", restarts)
        for name, text, value in self._values():
            yield gauge(f"interlock_{name}", text, ({}, value))
        build = {"version": version(), "python": platform.python_version(), "mitmproxy": metadata.version("mitmproxy")}
        yield gauge("interlock_build_info", "Versions that run.", (build, 1))
        yield gauge("interlock_policy_info", "The policy in force.", ({"version": self._policy.current().version}, 1))
        pids = {f"worker-{slot.number}": slot.worker.pid for slot in self._slots if slot.worker is not None}
        memory = [({"process": name}, _resident(pid)) for name, pid in {"supervisor": os.getpid(), **pids}.items()]
        yield gauge("interlock_resident_bytes", "Memory of each process.", *memory)

    def _values(self) -> Iterator[tuple[str, str, float]]:
        backlog = self._read_backlog()
        yield "workers", "Workers that should run.", len(self._slots)
        yield "workers_serving", "Workers that serve now.", sum(slot.serves for slot in self._slots)
        yield "ready", "1 if /readyz answers 200.", not dict(self._wrong())
        yield "audit_backlog_events", "Events not yet in the store.", backlog.events
        yield "audit_lag_seconds", "Age of the oldest of these events.", backlog.lag_seconds or 0.0
        yield "audit_rejected_events", "Events that the store refused.", backlog.rejected
        yield "audit_log_bytes", "Size of the local logs on disk.", log_bytes(self._settings.state_dir)
        problem = any(report.policy_problem for report in self.reports())
        yield "policy_problem", "1 if the policy on disk is invalid.", problem
        yield "start_time_seconds", "When the proxy started.", self._started


def _resident(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  read at every scrape
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0.0


def _reply(status: int, value: dict[str, object]) -> Reply:
    return Reply(status, json.dumps(value) + "\n")
