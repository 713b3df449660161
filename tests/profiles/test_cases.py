"""Every profile contains what its table in docs/profiles.md says, and stops no honest traffic."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.profiles.cases_file import Case, load_cases
from tests.profiles.world import ProfileRunner

CASES = load_cases()


async def run_all(profile: str, state_dir: Path) -> list[tuple[Case, bool]]:
    runner = ProfileRunner(profile, state_dir)
    return [(case, await runner.contained(case)) for case in CASES]


def results(profile: str, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, bool]]:
    return asyncio.run(run_all(profile, tmp_path_factory.mktemp(profile)))


def summary(found: list[tuple[Case, bool]]) -> str:
    rows = Counter((case.family, case.expect, contained) for case, contained in found)
    lines = []
    for family in sorted({case.family for case in CASES}):
        hit, missed = rows[family, "contained", True], rows[family, "contained", False]
        stopped, passed = rows[family, "benign", True], rows[family, "benign", False]
        lines.append(f"{family}: {hit} of {hit + missed} contained, {stopped} of {stopped + passed} benign stopped")
    return "\n".join(lines)


def test_watch_stops_nothing(tmp_path_factory):
    assert [case.id for case, contained in results("watch", tmp_path_factory) if contained] == []
