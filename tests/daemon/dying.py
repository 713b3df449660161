"""`interlock` that is killed at one point of its way through a commit: `python -m tests.daemon.dying POINT up …`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

from proxy import cli

POINTS = {
    "before the nonce": ("proxy.gate.two_phase", "TwoPhase", "_consume", "before"),
    "after the nonce": ("proxy.gate.two_phase", "TwoPhase", "_consume", "after"),
    "after the record": ("proxy.gate.in_flight", "InFlightCalls", "begin", "before"),
    "after forwarding": ("proxy.gate.response", "ResponseGate", "observe", "before"),
}


def kill_all() -> None:
    """Kill the whole proxy: this worker, and the supervisor that would replace it."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def die(point: str) -> None:
    module, owner, name, when = POINTS[point]
    holder = getattr(importlib.import_module(module), owner)
    original = getattr(holder, name)

    def is_commit(self: Any, *arguments: Any) -> bool:
        held = [getattr(argument, "commit", None) for argument in arguments]
        return name == "_consume" or any(held)

    if when == "after":

        async def dying(self: Any, *arguments: Any) -> Any:
            await original(self, *arguments)
            kill_all()
    else:

        def dying(self: Any, *arguments: Any) -> Any:
            if is_commit(self, *arguments):
                kill_all()
            return original(self, *arguments)

    setattr(holder, name, dying)


def main() -> None:
    die(sys.argv.pop(1))
    cli.main()


if __name__ == "__main__":
    main()
