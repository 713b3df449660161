"""Run scenario.yaml end to end: a server, `interlock up` in front of it, and an MCP client that follows the answers.

    make example

The client knows about two-phase execution only what `tools/list` and the answers say.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from rich.console import Console
from rich.table import Table
from ruamel.yaml import YAML

HERE = Path(__file__).resolve().parent
START_SECONDS = 30


class Run:
    """A client's session, and what it takes to follow the scenario."""

    def __init__(self, client: Client, state_dir: Path, log: Path) -> None:
        self._client = client
        self._state_dir = state_dir
        self._log = log

    async def step(self, step: dict[str, Any]) -> tuple[str, str]:
        """Act on one prompt; return the result and the reason."""
        listed = {tool.name for tool in (await self._client.list_tools()).tools}
        tool, before = step["tool"], self._executions()
        if f"{tool}_propose" in listed:
            why = await self._two_steps(step)
        else:
            why = refusal_reason(await self._client.call_tool(tool, step["arguments"]))
        ran = self._executions()[len(before) :]
        if ran:
            assert ran == [{"tool": tool, "arguments": step["arguments"]}], ran
            return "ran", why
        return ("denied" if why.startswith("policy") else "blocked"), why

    async def _two_steps(self, step: dict[str, Any]) -> str:
        answer = await self._propose(step)
        if isinstance(answer, dict) and answer["status"] == "pending" and step.get("approve"):
            self._approve(answer["proposal_id"])
            answer = await self._propose(step)
        if isinstance(answer, str):
            return answer
        if answer["status"] != "allowed":
            return str(answer.get("reason") or answer["status"])
        given = {**step["arguments"], **{name: answer[name] for name in ("proposal_id", "commit_token")}}
        result = await self._client.call_tool(f"{step['tool']}_commit", given)
        return f"score {answer['composite_score']}" if not result.is_error else refusal_reason(result)

    async def _propose(self, step: dict[str, Any]) -> dict[str, Any] | str:
        extra = {"prompt": step["prompt"], **({"candidate_outputs": step["drafts"]} if "drafts" in step else {})}
        result = await self._client.call_tool(f"{step['tool']}_propose", {**step["arguments"], "_interlock": extra})
        return refusal_reason(result) if result.is_error else dict(result.structured_content or {})

    def _approve(self, proposal_id: str) -> None:
        """Do what an operator does, in another terminal."""
        command = [sys.executable, "-m", "proxy.cli", "proposals", "approve", proposal_id]
        command += ["--reason", "the invoice was checked", "--state-dir", str(self._state_dir)]
        subprocess.run(command, check=True, capture_output=True, timeout=30, cwd=HERE.parent.parent)

    def _executions(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines]


def refusal_reason(result: Any) -> str:
    """Return why a call was refused; an empty text if it was not."""
    denial = (result.meta or {}).get("mcp-interlock/denial")
    return str(denial["reason"]) if denial else ""


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=HERE.parent.parent)
    with process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for_proxy(state_dir: Path) -> str:
    """Return the proxy's address once it listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((state_dir / "run.json").read_text())["listen"])
        time.sleep(0.05)
    raise SystemExit("the proxy did not start")


async def follow(url: str, state_dir: Path, log: Path) -> bool:
    """Act on every prompt, print what became of each, and say whether all went as expected."""
    table = Table("prompt", "tool", "became", "why", box=None, pad_edge=False)
    good = True
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), read_timeout_seconds=30) as client,
    ):
        run = Run(client, state_dir, log)
        for step in YAML(typ="safe").load(HERE / "scenario.yaml")["steps"]:
            became, why = await run.step(step)
            good = good and became == step["expect"]
            shown = became if became == step["expect"] else f"{became} (expected: {step['expect']})"
            table.add_row(step["prompt"], step["tool"], shown, why)
    Console(highlight=False).print(table)
    return good


def main() -> None:
    """Start everything, follow the scenario, and exit with 1 where something went otherwise than expected."""
    print(
        "An agent gets ten prompts and calls ten tools. Policy makes some calls two-phase. About 10 seconds:\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        state_dir, log = Path(folder) / "state", Path(folder) / "executed.log"
        with running(str(HERE / "server.py"), "--log", str(log)) as server:
            assert server.stdout is not None
            target = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            flags = ["--listen", "127.0.0.1:0", "--mode", f"reverse:{target}", "--policy", str(HERE / "policy.yaml")]
            flags += ["--workers", "1", "--health-listen", "off", "--state-dir", str(state_dir), "--log-level", "error"]
            with running("-m", "proxy.cli", "up", *flags):
                url = f"http://{wait_for_proxy(state_dir)}/mcp"
                good = asyncio.run(follow(url, state_dir, log))
    print("\nPolicy: examples/two_phase/policy.yaml. What two-phase is: docs/two-phase.md.")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
