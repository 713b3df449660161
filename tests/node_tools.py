"""The TypeScript side of the tests: real MCP servers and clients from npm, run by their own Node.

`make test` installs them into tests/node/node_modules.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from tests.harness import Certificates, ServerHandle, start_process_server

NODE_DIR = Path(__file__).resolve().parent / "node"
MODULES = NODE_DIR / "node_modules"
NODE = MODULES / ".bin" / "node"
"""Node 22, which honours HTTPS_PROXY when NODE_USE_ENV_PROXY=1; older ones do not."""

CLIENT_LIMIT = 60.0

type ServerName = Literal["v1-raw", "v1-express", "v1-sse", "v2"]
type ClientName = Literal["v1", "v1-sse", "v2"]
type EverythingTransport = Literal["streamableHttp", "sse"]
type Report = dict[str, Any]
"""What a client printed: one object per step, see tests/node/clients/common.mjs."""


def node() -> str:
    """Give the path of Node 22.

    Raises AssertionError where the npm packages are not installed.
    """
    assert NODE.exists(), f"{NODE} is missing: run `make test` once, or `npm install` in {NODE_DIR}"
    return str(NODE)


def server_command(name: str) -> list[str]:
    """Give the command of a server under tests/node/servers, for `start_process_server`."""
    return [node(), str(NODE_DIR / "servers" / f"{name}.mjs")]


def endpoint_path(name: str) -> str:
    """Give the path of a server's MCP endpoint."""
    return "/sse" if name.endswith("sse") else "/mcp"


def start_node_server(
    name: ServerName,
    directory: Path,
    *,
    certificates: Certificates | None = None,
    flags: Sequence[str] = (),
) -> AbstractContextManager[ServerHandle]:
    """Run a TypeScript server until the block ends; with `certificates` it speaks TLS.

    Flags: `--stateless`, `--json` (no SSE answers), `--resumable` (priming events and
    Last-Event-ID).
    """
    return start_process_server(name, server_command(name), directory, certificates=certificates, flags=flags)


def start_everything(transport: EverythingTransport, directory: Path) -> AbstractContextManager[ServerHandle]:
    """Run the reference server-everything over plain HTTP until the block ends."""
    return start_process_server(
        f"everything-{transport.lower()}",
        server_command("everything"),
        directory,
        flags=["--transport", transport],
    )


def clean_environment() -> dict[str, str]:
    """Give this process's environment without anybody's proxy settings."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def proxy_environment(proxy_url: str, ca_file: Path) -> dict[str, str]:
    """Give what sends a Node client through a proxy whose CA it trusts."""
    return {
        "HTTP_PROXY": proxy_url,
        "HTTPS_PROXY": proxy_url,
        "NO_PROXY": "",
        "NODE_USE_ENV_PROXY": "1",
        "NODE_EXTRA_CA_CERTS": str(ca_file),
    }


def run_client(
    name: ClientName, url: str, *, flags: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Report:
    """Run a TypeScript client against `url` to its end and give its report.

    Raises AssertionError where it fails, TimeoutExpired where it does not end within CLIENT_LIMIT.
    """
    done = subprocess.run(
        [node(), str(NODE_DIR / "clients" / f"{name}.mjs"), "--url", url, *flags],
        env=clean_environment() | dict(env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CLIENT_LIMIT,
        check=False,
    )
    assert done.returncode == 0, f"the {name} client exited with {done.returncode}:\n{done.stderr}"
    report: Report = json.loads(done.stdout)
    return report
