"""What comes in: `strict` contains every case of ours, and neither profile stops an honest one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.profiles.cases_file import load_cases
from tests.profiles.world import ProfileRunner

CASES = [case for case in load_cases() if case.family in ("a2a", "tools", "pages")]
LEAST = {"strict": 1.0, "balanced": 0.75}


@pytest.mark.parametrize("profile", LEAST)
def test_a_profile_contains_what_it_says(profile: str, tmp_path: Path) -> None:
    async def run() -> dict[str, bool]:
        runner = ProfileRunner(profile, tmp_path)
        return {case.id: await runner.contained(case) for case in CASES}

    contained = asyncio.run(run())
    attacks = [case.id for case in CASES if case.expect == "contained"]
    missed = [name for name in attacks if not contained[name]]
    assert len(missed) <= (1 - LEAST[profile]) * len(attacks), missed
    assert [case.id for case in CASES if case.expect == "benign" and contained[case.id]] == []
