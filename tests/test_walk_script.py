"""One allowed call through the real proxy stays easy to follow: scripts/walk.py counts its changes of file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.harness import seed_cache
from tests.support.processes import REPOSITORY
from tests.support.timeouts import PATIENCE

# On a busy machine the log's timer is part of the walk: one change more than the walk usually has.
MOST_CHANGES = {"default.yaml": 93, "profiles/balanced.yaml": 125}


def test_an_allowed_call_changes_file_seldom_enough_to_follow(tmp_path: Path) -> None:
    seed_cache(tmp_path)
    started = {}
    for policy, most in MOST_CHANGES.items():  # at the same time: most of a walk is waiting
        command = [sys.executable, "scripts/walk.py", "--no-picture", "--policy", policy, "--max", str(most)]
        command += ["--cache", str(tmp_path / "cache")]
        piped = subprocess.PIPE
        started[policy] = subprocess.Popen(command, cwd=REPOSITORY, stdout=piped, stderr=piped, text=True)
    for policy, walking in started.items():
        walk, errors = walking.communicate(timeout=4 * PATIENCE)
        assert walking.returncode == 0, f"{policy}: {walk[-4000:]}{errors}"
        # It is the walk of a whole call: decided, recorded, forwarded, and its result masked and recorded.
        for function in ("RequestGate.inspect", "CompiledPolicy.decide", "LocalLog.record", "EventRecorder.completed"):
            assert function in walk
