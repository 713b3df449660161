from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.secret_variables import COMMIT_SECRET
from proxy.runtime.fleet_report import FleetReport
from proxy.store.migrate import migrations
from tests.support.fleet_fixture import FleetWorld


def test_a_replica_says_how_it_is(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = FleetWorld(tmp_path, database_url)
    made = world.init("a")
    fleet = world.open("a")
    report = FleetReport(world.settings("a", workers=3), fleet, lambda: "policy-1", lambda: "a problem")
    said = report.replica()
    assert (said.replica_id, said.policy, said.problem, said.workers) == (made.replica_id, "policy-1", "a problem", 3)
    assert (said.schema_version, said.waiting_events) == (migrations("postgres")[-1].version, 0)
    # Keys from the environment are used in place of the shared ones, and so are what counts.
    monkeypatch.setenv(COMMIT_SECRET, "0123456789abcdef" * 4)
    assert report.replica().keys != said.keys
    world.close()
