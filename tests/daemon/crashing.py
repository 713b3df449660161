"""`interlock` whose workers die of any request: `python -m tests.daemon.crashing up …`."""

from __future__ import annotations

import os
import signal
from typing import Any

from addons.mcp import McpGate
from proxy import cli
from proxy.runtime import supervisor


async def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    McpGate.request = die  # type: ignore[method-assign]
    supervisor.FIRST_PAUSE = 0.05  # type: ignore[misc]
    cli.main()


if __name__ == "__main__":
    main()
