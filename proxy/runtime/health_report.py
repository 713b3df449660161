"""What the supervisor answers on /healthz, /readyz and /metrics."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib import metadata
from typing import TYPE_CHECKING, Final

from proxy.audit.backlog import Backlog, SinkBacklog, read_backlog
from proxy.audit.local_log_files import log_bytes
from proxy.metrics.http_server import Reply
from proxy.system.package_data import version
from proxy.system.terminal_text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from proxy.config import Settings
    from proxy.metrics.counters import Counters
    from proxy.policy.reloader import LivePolicy
    from proxy.runtime.worker_process import WorkerSlot, WorkerStatus

# A worker sends a heartbeat every second; on a busy machine it may be late.
SILENT_SECONDS: Final = 15.0
# How long the backlog read from disk is reused: a client that polls fast must not cost disk reads.
REMEMBERED_SECONDS: Final = 1.0


SINK_GAUGES: Final[Sequence[tuple[str, str, Callable[[SinkBacklog], float]]]] = (
    ("sink_backlog_events", "Events that a sink has not taken yet.", lambda sink: sink.events),
    ("sink_lag_seconds", "Age of the oldest of these events.", lambda sink: sink.lag_seconds or 0.0),
    ("sink_lost_events", "Events that a sink did not get, and the store did.", lambda sink: sink.lost),
    ("sink_problem", "1 if a sink does not take events.", lambda sink: float(sink.problem is not None)),
)


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
                told = dict(self._warnings())
                body = {"ready": not wrong, "not_ready": wrong} | ({"warnings": told} if told else {})
                return _reply(503 if wrong else 200, body)
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
        yield from self._reported()
        yield from self._behind_store()

    def _reported(self) -> Iterator[tuple[str, str]]:
        """Yield what workers say of themselves: of each kind, what the first of them says."""
        pushed = self._settings.policy_source == "pushed"
        policy = "a newer policy cannot be used here" if pushed else "the policy on disk is invalid"
        two_phase = "calls of two-phase rules are refused, since the store cannot be used"
        for name, field, said in (
            ("policy", "policy_problem", f"{policy}; the previous one stays in force: "),
            ("audit_log", "log_problem", "the audit log cannot be written: "),
            ("two_phase", "store_problem", f"{two_phase}: "),
            ("fleet", "fleet_problem", ""),
        ):
            if problem := next(filter(None, (getattr(report, field) for report in self.reports())), None):
                yield name, f"{said}{problem}"

    def _behind_store(self) -> Iterator[tuple[str, str]]:
        backlog, limit = self._read_backlog(), self._settings.ready_lag
        if backlog.lag_seconds is not None and backlog.lag_seconds > limit:
            why = f" ({'; '.join(backlog.problems)})" if backlog.problems else ""
            lag = f"the oldest of {count(backlog.events, 'event')} waits for {backlog.lag_seconds:.0f} s"
            yield "store", f"{lag}, which is more than ready_lag ({limit:g} s){why}"
        for sink in backlog.sinks:
            if sink.required and (sink.lag_seconds or 0.0) > limit:
                yield f"sink {sink.name}", f"{_behind(sink)}, which is more than ready_lag ({limit:g} s)"

    def _warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong beside the proxy: it serves, and the store has every event."""
        if problem := self._read_backlog().transparency_problem:
            yield "transparency log", problem
        for sink in self._read_backlog().sinks:
            gaps = f"it did not get {count(sink.lost, 'event')}, which the store has" if sink.lost else ""
            late = sink.problem or (sink.lag_seconds or 0.0) > self._settings.ready_lag
            if told := "; ".join(filter(None, (gaps, _behind(sink) if late else ""))):
                yield f"sink {sink.name}", told

    def _read_backlog(self) -> Backlog:
        now = time.monotonic()
        if self._backlog is None or now > self._read_at + REMEMBERED_SECONDS:
            self._backlog = read_backlog(self._settings.state_dir, time.time())
            self._read_at = now
        return self._backlog

    def _metrics(self) -> Reply:
        from proxy.metrics.prometheus import (  # noqa: PLC0415  at the first scrape
            CONTENT_TYPE,
            counted,
            expose,
            server_times,
        )

        named = [server_times(self._counters)] if self._settings.server_metrics else []
        return Reply(200, expose([*counted(self._counters), *named, *self._gauges()]), CONTENT_TYPE)

    def _gauges(self) -> Iterator[Metric]:
        """Yield what is not counted but known when somebody asks."""
        from prometheus_client.metrics_core import CounterMetricFamily  # noqa: PLC0415

        from proxy.metrics.prometheus import gauge  # noqa: PLC0415

        restarts = sum(max(0, slot.restarts) for slot in self._slots)
        yield CounterMetricFamily("interlock_worker_restarts", "Workers that were replaced.", restarts)
        for name, text, value in self._values():
            yield gauge(f"interlock_{name}", text, ({}, value))
        for name, text, read in SINK_GAUGES:
            values = [({"sink": sink.name}, read(sink)) for sink in self._read_backlog().sinks]
            if values:
                yield gauge(f"interlock_{name}", text, *values)
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


def _behind(sink: SinkBacklog) -> str:
    waits = f"the oldest of {count(sink.events, 'event')} waits for {sink.lag_seconds or 0.0:.0f} s"
    return waits + (f" ({sink.problem})" if sink.problem else "")


def _resident(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  read at every scrape
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0.0


def _reply(status: int, value: dict[str, object]) -> Reply:
    return Reply(status, json.dumps(value) + "\n")
