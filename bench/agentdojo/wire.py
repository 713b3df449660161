"""The same through a real proxy, for a part of the runs: an MCP server beside it answers as AgentDojo's tools did.

    python -m bench.agentdojo.wire RUNS.jsonl

Takes three user tasks of each suite, and one pair with each exfiltrating injection. Exits with 1 where one of them ends
otherwise than in the gate.
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

from bench.agentdojo.replay import EXFILTRATING
from bench.processes import free_port, listening
from proxy.store.flow_store import FlowMarks
from proxy.store.sqlite import STORE_FILE, SqliteDatabase

POLICY = Path("examples/flows/policy.yaml")
START_SECONDS = 60.0
AGENT = "agent"
EACH = 3
TOUCHED = {("travel", "user_task_3"), ("banking", "user_task_0")}  # stopped in the gate, too


@contextlib.contextmanager
def started(*words: str, port: int) -> Iterator[None]:
    """Run a program that listens on a port, until the block ends. Raises TimeoutError where it does not listen."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not listening(port):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{words[1]} does not listen")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def chosen(runs: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the first user tasks of each suite, and the first pair with each exfiltrating injection."""
    tasks: dict[str, int] = {}
    pairs: set[tuple[str, str]] = set()
    for number, run in enumerate(runs):
        suite, injection = run["suite"], run["injection"]
        if (suite, run["user_task"]) in TOUCHED and injection is None:
            continue
        if injection is None and tasks.get(suite, 0) < EACH and len(run["steps"]) > 1:
            tasks[suite] = tasks.get(suite, 0) + 1
            yield number, run
        elif injection in EXFILTRATING[suite] and (suite, injection) not in pairs:
            pairs.add((suite, injection))
            yield number, run


def stopped(client: httpx2.Client, url: str, steps: list[dict[str, Any]]) -> bool:
    """Make the calls; return whether one was stopped by a flow. Raises AssertionError where one failed otherwise."""
    found = False
    for step in steps:
        params = {"name": step["tool"], "arguments": step["arguments"]}
        answer = client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert answer.status_code == 200, answer.text
        denial = answer.json()["result"].get("_meta", {}).get("mcp-interlock/denial")
        assert denial is None or denial["reason"] == "flow_denied", denial
        found = found or denial is not None
    return found


def main() -> int:
    """Print what became of each run; return 1 where one ended otherwise than it should."""
    file = Path(sys.argv[1])
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    server, proxy = free_port(), free_port()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        up = ("-m", "proxy.cli", "up", "--policy", str(POLICY), "--state-dir", folder, "--listen", f"127.0.0.1:{proxy}")
        with (
            started("-m", "bench.agentdojo.server", str(file), str(server), port=server),
            started(*up, port=proxy),
            httpx2.Client(proxy=f"http://127.0.0.1:{proxy}", timeout=60, trust_env=False) as client,
        ):
            marks = FlowMarks(SqliteDatabase(Path(folder) / STORE_FILE, in_thread=False))
            for number, run in chosen(runs):
                url = f"http://127.0.0.1:{server}/mcp/{number}"
                touched = stopped(client, url, run["steps"])
                ended = stopped(client, url, run["injected"]) if run["injection"] else touched
                wrong += ended is not (run["injection"] is not None)
                asyncio.run(marks.clear(AGENT, None, "bench", time.time()))
                print(run["suite"], run["user_task"], run["injection"] or "", "stopped" if ended else "untouched")
    print(f"{wrong} ended otherwise than they should")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
