"""The recording in the README is what the commands print today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.harness import REPOSITORY


def test_the_recording_shows_what_the_commands_print(tmp_path: Path) -> None:
    drawn, kept = tmp_path / "first-hour.svg", REPOSITORY / "docs" / "first-hour.svg"
    words = [sys.executable, str(REPOSITORY / "scripts" / "recording.py"), str(drawn)]
    subprocess.run(words, cwd=REPOSITORY, check=True, timeout=100)
    assert drawn.read_text() == kept.read_text(), "the commands changed: `make recording` draws the picture anew"
    # A picture fetches nothing: its namespace is all it names.
    assert drawn.read_text().count("http") == 1
