"""One allowed call through the real proxy stays easy to follow: scripts/walk.py counts its changes of file."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import REPOSITORY
from tests.support.timeouts import PATIENCE

MOST_CHANGES = 105


def test_an_allowed_call_changes_file_seldom_enough_to_follow() -> None:
    command = [sys.executable, "scripts/walk.py", "--no-picture", "--max", str(MOST_CHANGES)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    walk = done.stdout
    # It is the walk of a whole call: decided, recorded, forwarded, and its result masked and recorded.
    for function in ("RequestGate.inspect", "CompiledPolicy.decide", "LocalLog.record", "EventRecorder.completed"):
        assert function in walk
