"""How the proxy says that it is: ready or what is not, and in numbers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.audit.backlog import Backlog
from proxy.config import Settings
from proxy.core.model import AuditEvent
from proxy.metrics.counters import Counters
from proxy.runtime import health_report
from proxy.runtime.health_report import HealthReport
from proxy.runtime.worker_process import WorkerStatus

NOTHING = Backlog(0, None, 0, ())


class World:
    def __init__(self, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots = [self._slot(1), self._slot(2)]
        self.backlog = NOTHING
        monkeypatch.setattr(health_report, "read_backlog", lambda *_: self.backlog)
        monkeypatch.setattr(health_report, "REMEMBERED_SECONDS", -1.0)
        policy: Any = SimpleNamespace(current=lambda: SimpleNamespace(version="v7"))
        settings = Settings(state_dir=state_dir, ready_lag=60)
        self.counters = Counters(2)
        for number in (1, 2):
            self.counters.row(number).beat()
        self.health = HealthReport(settings, self.counters, self.slots, policy)

    def _slot(self, number: int) -> Any:
        worker = SimpleNamespace(pid=os.getpid(), report=WorkerStatus("v7"))
        return SimpleNamespace(number=number, worker=worker, restarts=number, serves=True)

    def ask(self, path: str) -> tuple[int, Any]:
        reply = self.health.answer(path)
        return reply.status, reply.body if path == "/metrics" else json.loads(reply.body)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_it_is_alive_and_ready_and_knows_no_other_page(world: World) -> None:
    assert world.ask("/healthz")[1]["alive"] is True
    assert world.ask("/readyz") == (200, {"ready": True, "not_ready": {}})
    status, said = world.ask("/secrets")
    assert (status, "/readyz" in said["error"]) == (404, True)


def test_each_thing_that_is_not_ready_is_named(world: World) -> None:
    def wrong() -> dict[str, str]:
        status, said = world.ask("/readyz")
        assert (status, said["ready"]) == (503, False)
        assert "interlock_ready 0.0\n" in world.ask("/metrics")[1]
        named: dict[str, str] = said["not_ready"]
        return named

    world.slots[1].serves, world.slots[1].worker = False, None
    assert wrong() == {"workers": "1 of 2 do not serve (number 2)"}
    world.slots[0].worker.report = WorkerStatus("v7", "policy.yaml:4: no", "disk full")
    assert {name: text[-12:] for name, text in wrong().items()} == {
        "workers": "e (number 2)",
        "policy": "y.yaml:4: no",
        "audit_log": "n: disk full",
    }
    world.slots.pop()
    world.slots[0].worker.report = WorkerStatus("v7")
    world.backlog = Backlog(12, 61.0, 0, ("events.db: no route",))
    text = wrong()["store"]
    assert all(word in text for word in ("12 events", "61 s", "ready_lag", "no route"))
    world.backlog = Backlog(12, 59.0, 0, ())
    world.counters._beats[0] -= 20
    assert wrong() == {"silent": "no heartbeat for 15 s from worker 1"}
    world.counters.row(1).beat()
    world.health.stopping = True
    assert list(wrong()) == ["stopping"]


def test_the_metrics_tell_of_workers_log_policy_and_build(world: World) -> None:
    world.backlog = Backlog(5, 1.5, 2, ())
    (world.health._settings.state_dir / "log").mkdir()
    (world.health._settings.state_dir / "log" / "events.db-wal").write_bytes(b"x" * 1000)
    families = text_string_to_metric_families(world.ask("/metrics")[1])
    samples = {sample.name: sample for family in families for sample in family.samples}
    expected = {
        "interlock_workers": 2,
        "interlock_workers_serving": 2,
        "interlock_worker_restarts_total": 3,
        "interlock_audit_backlog_events": 5,
        "interlock_audit_lag_seconds": 1.5,
        "interlock_audit_rejected_events": 2,
        "interlock_audit_log_bytes": 1000,
        "interlock_policy_info": 1,
        "interlock_policy_problem": 0,
        "interlock_calls_under_way": 0,
    }
    assert {name: samples[name].value for name in expected} == expected
    assert samples["interlock_policy_info"].labels == {"version": "v7"}
    assert samples["interlock_build_info"].labels.keys() == {"version", "python", "mitmproxy"}
    assert samples["interlock_resident_bytes"].labels == {"process": "worker-2"}
    assert samples["interlock_resident_bytes"].value > 0


def test_a_store_that_two_phase_rules_need_is_part_of_being_ready(world: World) -> None:
    world.slots[1].worker.report = WorkerStatus("v7", store_problem="no answer in time")
    status, said = world.ask("/readyz")
    assert (status, "two_phase" in said["not_ready"]) == (503, True)
    assert "no answer in time" in said["not_ready"]["two_phase"]


def test_names_of_servers_are_left_out_unless_they_are_wanted(world: World) -> None:
    event = AuditEvent(event_id="e", kind="completed", time=0, server="files.example", upstream_ms=20.0)
    world.counters.row(1).count(event)
    assert "files.example" not in world.ask("/metrics")[1]
    world.health._settings = world.health._settings.model_copy(update={"server_metrics": True})
    assert 'interlock_server_seconds_count{server="files.example"} 1.0' in world.ask("/metrics")[1]


def test_a_transparency_log_that_is_away_is_a_warning_and_no_reason_not_to_serve(world: World) -> None:
    why = "it has taken no checkpoints for 9 s: it is away"
    world.backlog = replace(NOTHING, transparency_problem=why)
    assert world.ask("/readyz") == (200, {"ready": True, "not_ready": {}, "warnings": {"transparency log": why}})
