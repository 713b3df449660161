"""A verification that goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit.pipeline import checkpoint_file
from proxy.config import Settings, load_settings
from proxy.console import verification
from proxy.console.trail import Trail
from proxy.console.verification import Progress, Verification
from tests.support.audit_fixture import TRAIL, World, event


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    world = World(tmp_path, None)
    world.record(*TRAIL)
    world.ship()
    world.record(event(20))
    return load_settings({"state_dir": tmp_path}).settings


async def verified(settings: Settings) -> Progress:
    trail = Trail(None, settings.state_dir)
    made = Verification(settings, trail)
    made.begin("ann")
    first = made.progress
    made.begin("bob")
    assert made.progress is first, "two at a time"
    await made.wait()
    await trail.close()
    assert made.progress is not None
    assert made.progress.ended is not None
    return made.progress


async def test_a_whole_trail_is_good(settings: Settings) -> None:
    found = await verified(settings)
    assert (found.verdict, found.operator, found.done) == ("good", "ann", 7)
    assert found.report is not None
    assert found.report.checked == 7
    assert found.share == 1.0


async def test_a_damaged_checkpoint_and_a_missing_event_are_bad(settings: Settings) -> None:
    file = checkpoint_file(settings)
    file.write_text(file.read_text().replace('"seq": 6', '"seq": 8'))
    assert (await verified(settings)).verdict == "bad"


async def test_without_checkpoints_nothing_is_proven(settings: Settings) -> None:
    checkpoint_file(settings).unlink()
    assert (await verified(settings)).verdict == "unproven"


async def test_what_cannot_be_read_is_never_good(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint_file(settings).unlink()
    checkpoint_file(settings).mkdir()
    found = await verified(settings)
    assert (found.verdict, "cannot be read" in found.problem) == ("failed", True)

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(verification, "read_evidence", fail)
    found = await verified(settings)
    assert found.verdict == "failed"
    assert "unforeseen" not in found.problem


def test_a_running_one_has_no_verdict_yet() -> None:
    progress = Progress("ann", 0.0, done=5, expected=10)
    assert (progress.verdict, progress.share) == ("running", 0.5)
