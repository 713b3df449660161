"""The allow list: what it excuses, and that a bad one excuses nothing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.probe.allow_list import apply_allow_list, load_allow_list
from proxy.probe.findings import ProbeFinding
from proxy.probe.report import ProbeReport

TODAY = dt.date(2026, 11, 18)
FOUND = ProbeFinding("a", "undeclared-egress", "high", "net.connect", "It.", (), ("x.example:443",), ("b",))


def judged(tmp_path: Path, text: str) -> tuple[list[tuple[str | None, ...]], list[str]]:
    file = tmp_path / "allow.yaml"
    file.write_text(text)
    report = apply_allow_list(ProbeReport({}, (), {}, (FOUND,), {}), load_allow_list(file), TODAY)
    return [each.tools for each in report.findings], [reason for _, reason in report.allowed]


def entry(more: str = "") -> str:
    return f"allow:\n  - {{rule: undeclared-egress, reason: looked at{more}}}\n"


@pytest.mark.parametrize("more", ["", ", tools: ['*']", ", targets: ['*.example:443']", ", until: 2026-11-18"])
def test_an_entry_that_fits_excuses(tmp_path: Path, more: str) -> None:
    assert judged(tmp_path, entry(more)) == ([], ["looked at"])


@pytest.mark.parametrize("more", [", targets: [y.example]", ", until: 2026-11-17", ", tools: [c]", ", targets: []"])
def test_an_entry_that_does_not_fit_excuses_nothing(tmp_path: Path, more: str) -> None:
    assert judged(tmp_path, entry(more)) == ([("a", "b")], [])


def test_only_the_named_tools_are_excused(tmp_path: Path) -> None:
    assert judged(tmp_path, entry(", tools: [a]")) == ([("b",)], ["looked at"])


@pytest.mark.parametrize(
    "text",
    [
        "allow:\n  - {rule: undeclared-egress}\n",
        "allow:\n  - {rule: undeclared-egress, reason: ''}\n",
        "allow:\n  - {rule: no-such-rule, reason: x}\n",
        "allow:\n  - {rule: trace-incomplete, reason: x}\n",
        "allow:\n  - {rule: tracer-tampering, reason: x}\n",
        "allow:\n  - {rule: undeclared-egress, reason: x, tool: a}\n",
        "allow: [",
        "",
        "other: []\n",
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "allow.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"allow\.yaml"):
        load_allow_list(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_allow_list(tmp_path / "none.yaml")
