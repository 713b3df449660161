"""A bank behind Interlock, and real clients of it, over every transport."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.harness import (
    REPOSITORY,
    Interlock,
    environment,
    interlock_cli,
    seed_cache,
    start_interlock,
    start_python_server,
)
from tests.support.processes import module_command
from tests.support.stdio_harness import run_words
from tests.support.timeouts import PATIENCE

MODERN = "2026-07-28"
POLICY = """\
version: 1
default: allow
rules:
  - id: money-moves-in-two-steps
    description: Money moves in two steps
    action: two_phase
    tools: ["*transfer*"]
    token_seconds: 120
"""
STABLE = {"candidate_outputs": ["moved 100 to bob", "moved 100 to bob"]}


@dataclass
class Bank:
    """A bank, its ledger, and the state folder of the Interlock before it."""

    ledger: Path
    state_dir: Path
    transport: str
    policy: Path
    interlock: Interlock | None = None
    flags: tuple[str, ...] = ()

    def entries(self) -> list[tuple[str, Any]]:
        """Return what was executed, in order."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(entry["tool"], entry["arguments"]) for entry in map(json.loads, lines)]

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an interlock command on the state folder."""
        return interlock_cli(*arguments, "--state-dir", str(self.state_dir))

    @contextlib.asynccontextmanager
    async def client(self, era: str, **options: Any) -> AsyncIterator[Client]:
        """Return a connected SDK client."""
        async with (
            self._transport() as transport,
            Client(transport, mode=era, read_timeout_seconds=PATIENCE, **options) as client,
        ):
            yield client

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        if self.transport == "stdio":
            yield stdio_client(self._sidecar())
            return
        assert self.interlock is not None
        if self.transport == "sse":
            yield sse_client(f"{self.interlock.url}/sse")
            return
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
            yield streamable_http_client(f"{self.interlock.url}/mcp", http_client=http)

    def _sidecar(self) -> StdioServerParameters:
        env = environment()
        server = module_command("tests.servers.funds", "--stdio", "--log", str(self.ledger), env=env)
        words = run_words(self.state_dir, self.policy, server, *self.flags, "--server-name", "bank")
        command = module_command("proxy.cli", *words, env=env)
        return StdioServerParameters(command=command[0], args=command[1:], cwd=REPOSITORY, env=env)


@contextlib.contextmanager
def open_bank(folder: Path, transport: str, policy: str = POLICY, *, flags: Sequence[str] = ()) -> Iterator[Bank]:
    """Open a bank for clients that come by `transport`: http, sse or stdio."""
    if transport == "stdio":
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "policy.yaml"
        file.write_text(policy)
        seed_cache(folder / "state")
        yield Bank(folder / "funds.log", folder / "state", transport, file, flags=tuple(flags))
        return
    with (
        start_python_server("funds", folder, flags=["--sse"] if transport == "sse" else []) as server,
        start_interlock(folder, f"reverse:{server.url}", policy, flags=flags) as interlock,
    ):
        yield Bank(server.log, interlock.state_dir, transport, folder / "policy.yaml", interlock)


def denial(result: Any) -> str:
    """Return why a call was refused; every refusal's text names its reason code."""
    assert result.is_error, result
    reason: str = result.meta["mcp-interlock/denial"]["reason"]
    assert f"({reason})" in result.content[0].text
    return reason
