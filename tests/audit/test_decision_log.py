"""The log lines of decisions: one for each, without arguments, written once it is durable by the thread that did so."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog.testing import capture_logs

from proxy.audit import decision_log
from proxy.audit.commit_pace import SLOW_IN_A_ROW, CommitPace
from proxy.audit.decision_log import log_decisions
from proxy.audit.local_log import LocalLog
from proxy.audit.pipeline import LenientSink
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError
from proxy.system.log_setup import configure

if TYPE_CHECKING:
    from pathlib import Path


def event(number: int = 1, **fields: Any) -> AuditEvent:
    plain: dict[str, Any] = {"call_id": f"c{number}", "tool": "t", "decision": "allow", "gate_ms": 0.5}
    return AuditEvent(event_id=str(number), kind="decided", time=1.0, **(plain | fields))


def test_a_decision_has_a_line_and_nothing_else_has() -> None:
    with capture_logs() as lines:
        log_decisions([event(arguments={"a": "hush"}), event(2, gate_ms=None), AuditEvent(kind="completed", time=1.0)])
    (line,) = lines
    assert {"call_id", "agent", "server", "tool", "method", "decision", "reason", "rule", "ms"} <= line.keys()
    assert (line["event"], line["call_id"], line["ms"]) == ("decided", "c1", 0.5)
    assert "hush" not in repr(lines)


def test_the_lines_of_a_batch_are_written_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure(log_format="json")
    try:
        log_decisions(event(number) for number in range(3))
        structlog.get_logger("x").info("after")
    finally:
        structlog.reset_defaults()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line.get("call_id", line["event"]) for line in lines] == ["c0", "c1", "c2", "after"]


@pytest.mark.parametrize(("slow", "thread"), [(-1.0, "audit-log"), (1000.0, "MainThread")])
async def test_the_thread_that_made_it_durable_writes_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: float, thread: str
) -> None:
    told: list[tuple[str, str | None]] = []
    log = LocalLog(tmp_path / "events.db")
    log._pace = CommitPace(slow)
    monkeypatch.setattr("proxy.audit.local_log.QUIET_SECONDS", 1000.0)
    monkeypatch.setattr("proxy.audit.commit_pace.REST_SECONDS", 1000.0)
    for number in range(SLOW_IN_A_ROW):
        await log.record(event(number))
    monkeypatch.setattr(decision_log, "_log", lambda one: told.append((threading.current_thread().name, one.call_id)))
    await log.record(event(9))
    await asyncio.sleep(0)
    log.close()
    assert told[-1] == (thread, "c9")


async def test_a_decision_that_could_not_be_recorded_has_no_line_unless_the_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []
    monkeypatch.setattr(decision_log, "_log", lambda one: told.append(one.call_id))
    log = LocalLog(tmp_path / "events.db")
    monkeypatch.setattr(log, "_append", lambda _entries: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(AuditUnavailableError):
        await log.record(event())
    assert told == []
    await LenientSink(log).record(event(2))
    log.close()
    assert told == ["c2"]


async def test_a_line_that_cannot_be_written_costs_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LocalLog(tmp_path / "events.db")
    monkeypatch.setattr(decision_log, "_log", lambda _event: (_ for _ in ()).throw(ValueError("no line")))
    await log.record(event())
    await log.record(event(2))
    log.close()
    assert log.head.seq == 2
