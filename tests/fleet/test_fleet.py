"""A short version of `make fleet`, and that its counts see what is wrong."""

from __future__ import annotations

from pathlib import Path

from tests.fleet import scene
from tests.support.harness import start_python_server


def test_kills_restarts_and_new_policies_lose_double_and_drop_nothing(tmp_path: Path, database_url: str) -> None:
    with start_python_server("lenient", tmp_path / "server") as server:
        counts = scene.run(tmp_path, database_url, server, 0, replicas=2, workers=1, rounds=6)
    assert counts.good, counts
    assert (counts.workers_killed, counts.replicas_killed, counts.restarts, counts.policies) == (1, 1, 2, 2)
    assert counts.acknowledged > 300


def test_a_call_that_an_old_policy_decided_is_seen() -> None:
    policies = [(0.0, "a"), (10.0, "b"), (20.0, "c")]
    ages = [scene.policy_age({"time": at, "policy_version": v}, policies) for at, v in ((5, "a"), (11, "a"), (25, "a"))]
    assert ages == [None, 1.0, 15.0]
    assert scene.policy_age({"time": 19.99, "policy_version": "c"}, policies) is None
