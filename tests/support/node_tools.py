"""The TypeScript side of the tests: real MCP servers and clients from npm, run by their own Node.

`make test` installs them into tests/node/node_modules.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

from tests.support.harness import Certificates, ServerHandle, start_process_server

NODE_DIR = Path(__file__).resolve().parents[1] / "node"
MODULES = NODE_DIR / "node_modules"
NODE = MODULES / "node" / "bin" / "node"
"""Node 22, which honours HTTPS_PROXY when NODE_USE_ENV_PROXY=1; older ones do not."""

OLD_NODE = MODULES / "node-20" / "bin" / "node"
"""Node 20, which ignores a proxy in its environment."""

CLIENT_LIMIT = 100.0

type ServerName = Literal["v1-raw", "v1-express", "v1-sse", "v2"]
type ClientName = Literal["v1", "v1-sse", "v2", "approval"]
type EverythingTransport = Literal["streamableHttp", "sse"]
type Report = dict[str, Any]
"""What a client printed: one object per step, see tests/node/clients/common.mjs."""


def node() -> str:
    """Return the path of Node 22.

    Raises AssertionError where the npm packages are not installed.
    """
    assert NODE.exists(), f"{NODE} is missing: run `make test` once, or `npm install` in {NODE_DIR}"
    return str(NODE)


def server_command(name: str) -> list[str]:
    """Return the command of a server under tests/node/servers, for `start_process_server`."""
    return [node(), str(NODE_DIR / "servers" / f"{name}.mjs")]


def endpoint_path(name: str) -> str:
    """Return the path of a server's MCP endpoint."""
    return "/sse" if name.endswith("sse") else "/mcp"


def start_node_server(
    name: ServerName,
    directory: Path,
    *,
    certificates: Certificates | None = None,
    flags: Sequence[str] = (),
) -> AbstractContextManager[ServerHandle]:
    """Run a TypeScript server until the block ends; with `certificates` it speaks TLS, and without on another port.

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
    """Return this process's environment without anybody's proxy settings."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def proxy_environment(proxy_url: str, ca_file: Path) -> dict[str, str]:
    """Return what sends a Node client through a proxy whose CA it trusts."""
    return {
        "HTTP_PROXY": proxy_url,
        "HTTPS_PROXY": proxy_url,
        "NO_PROXY": "",
        "NODE_USE_ENV_PROXY": "1",
        "NODE_EXTRA_CA_CERTS": str(ca_file),
    }


class NodeClients:
    """TypeScript clients that share one Node, which reads the environment when it starts: the proxy's among it."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed on leaving
        self._process = subprocess.Popen(
            [node(), str(NODE_DIR / "clients" / "main.mjs")],
            env=clean_environment() | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def run(self, name: ClientName, url: str, *, legacy: bool = False) -> Report:
        """Run a client against `url` to its end and give its report.

        Raises AssertionError where Node ends, or gives no report within CLIENT_LIMIT.
        """
        return self.order(name, {"url": url, "legacy": legacy})

    def order(self, name: str, options: Mapping[str, Any]) -> Report:
        """Run a client with options of its own."""
        assert self._process.stdin
        assert self._process.stdout
        order = {"client": name, **options}
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], CLIENT_LIMIT)
        line = self._process.stdout.readline() if ready else b""
        assert line, f"the {name} client gave no report:\n{self._said()}"
        report: Report = json.loads(line)
        return report

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process, self._errors:
            pass


def run_client(name: ClientName, url: str, *, env: Mapping[str, str] | None = None) -> Report:
    """Run one TypeScript client, in a Node of its own."""
    with NodeClients(env) as clients:
        return clients.run(name, url)
