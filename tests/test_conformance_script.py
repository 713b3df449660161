"""What scripts/conformance.py calls a loss."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.conformance import Outcome, lost_checks, read_outcome, read_results


def check(name: str, status: str, message: str | None = None) -> dict[str, str | None]:
    return {"id": "an-id", "name": name, "status": status, "errorMessage": message}


def outcome(passed: set[str], failed: set[str] | None = None) -> Outcome:
    return Outcome(frozenset(passed), dict.fromkeys(failed or (), "why"))


def test_a_check_that_fails_once_has_not_passed() -> None:
    found = read_outcome([check("a", "SUCCESS"), check("a", "FAILURE", "no"), check("b", "SUCCESS")])
    assert found == Outcome(frozenset({"an-id (b)"}), {"an-id (a)": "no"})


def test_a_warning_has_not_passed_and_information_does_not_count() -> None:
    found = read_outcome([check("a", "WARNING", "hm"), check("b", "INFO"), check("c", "SKIPPED")])
    assert found == Outcome(frozenset(), {"an-id (a)": "hm"})


def test_results_are_read_by_scenario_whatever_digits_its_name_has(tmp_path: Path) -> None:
    for scenario in ("json-schema-2020-12", "ping"):
        directory = tmp_path / f"server-{scenario}-2026-11-16T03-22-55-476Z"
        directory.mkdir()
        (directory / "checks.json").write_text(json.dumps([check("a", "SUCCESS")]))
    assert read_results(tmp_path).keys() == {"json-schema-2020-12", "ping"}


def test_what_passes_direct_and_fails_through_the_proxy_is_lost() -> None:
    assert lost_checks(outcome({"a", "b"}), outcome({"a"}, {"b"})) == {"b": "why"}


def test_what_passes_direct_and_never_runs_through_the_proxy_is_lost() -> None:
    assert lost_checks(outcome({"a"}), outcome(set())) == {"a": "did not run"}


def test_a_failure_that_only_the_proxy_brings_is_lost() -> None:
    assert lost_checks(outcome({"a"}), outcome({"a"}, {"b"})) == {"b": "why"}


def test_what_fails_both_ways_is_not_lost() -> None:
    assert lost_checks(outcome({"a"}, {"b"}), outcome({"a"}, {"b"})) == {}
