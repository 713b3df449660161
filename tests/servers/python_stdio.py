"""The Python SDK's server over stdio: 2026-07-28 and every handshake revision."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.common import ExecutionLog, make_server


def main() -> None:
    make_server(ExecutionLog(Path(sys.argv[1]))).run("stdio")


if __name__ == "__main__":
    main()
