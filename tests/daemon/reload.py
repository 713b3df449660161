"""Replacing the policy of a running proxy, and seeing that it was."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.support.harness import Interlock
from tests.support.timeouts import PATIENCE


def replace_policy(interlock: Interlock, text: str) -> None:
    (interlock.state_dir.parent / "policy.yaml").write_text(text)
    interlock.process.send_signal(signal.SIGHUP)


def wait_for(interlock: Interlock, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the run file once it is as wanted."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        run: dict[str, Any] = json.loads((interlock.state_dir / "run.json").read_bytes())
        if wanted(run):
            return run
        time.sleep(0.02)
    raise AssertionError(f"the run file stayed {run}")
