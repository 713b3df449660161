"""Real servers in the sandbox that was learned of them: each works through the SDK's client, and nothing is refused.

`make learned` runs all of them, Playwright's with a real browser among them; `make test` two.
"""

from __future__ import annotations

import asyncio
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.harness import REPOSITORY, environment, interlock_cli, seed_cache, start_interlock
from tests.support.node_tools import MODULES, node
from tests.support.stdio_harness import run_command
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail

pytestmark = [needs("strace", "ip", "unshare", "git"), needs_namespaces]
ALLOW = "version: 1\ndefault: allow\n"
KNOWN = f"""{ALLOW}egress:
  default: allow
  rules:
    - {{id: known, action: allow, hosts: [site.test, 127.0.0.1]}}
"""
PLAYWRIGHT = REPOSITORY / "tests/node/playwright/node_modules/@playwright/mcp/cli.js"
FULL = os.environ.get("LEARNED") == "full"

type Calls = list[tuple[str, dict[str, Any]]]


def _reference(name: str) -> list[str]:
    return [node(), str(MODULES / f"@modelcontextprotocol/server-{name}/dist/index.js")]


def _python(module: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", module, *flags]


@dataclass(frozen=True)
class Real:
    """A server that others wrote, in a folder of its own, and what is asked of it."""

    command: Callable[[Path], list[str]]
    calls: Callable[[Path, str], Calls]
    """By its folder, and the address of a web site."""
    env: tuple[str, ...] = ()
    """What it is told by its environment, as NAME=VALUE."""
    from_trail: bool = False
    """Whether what it does is only seen in use: a probe's invented arguments lead it nowhere."""
    reaches: bool = False
    """Whether it reaches hosts, for which a sandbox needs the proxy."""


def _files(root: Path, _: str) -> Calls:
    return [
        ("list_directory", {"path": str(root)}),
        ("read_text_file", {"path": str(root / "a.txt")}),
        ("write_file", {"path": str(root / "b.txt"), "content": "x"}),
        ("edit_file", {"path": str(root / "b.txt"), "edits": [{"oldText": "x", "newText": "y"}]}),
        ("create_directory", {"path": str(root / "folder")}),
        ("move_file", {"source": str(root / "b.txt"), "destination": str(root / "folder" / "c.txt")}),
        ("search_files", {"path": str(root), "pattern": "*.txt"}),
        ("directory_tree", {"path": str(root)}),
        ("get_file_info", {"path": str(root / "a.txt")}),
    ]


def _git(root: Path, _: str) -> Calls:
    at = {"repo_path": str(root)}
    return [
        ("git_status", at),
        ("git_log", at),
        ("git_diff_unstaged", at),
        ("git_add", {**at, "files": ["a.txt"]}),
        ("git_commit", {**at, "message": "more"}),
        ("git_create_branch", {**at, "branch_name": "side"}),
        ("git_checkout", {**at, "branch_name": "side"}),
    ]


def _memory(_: Path, __: str) -> Calls:
    entity = {"name": "A", "entityType": "thing", "observations": ["is here"]}
    return [
        ("create_entities", {"entities": [entity]}),
        ("add_observations", {"observations": [{"entityName": "A", "contents": ["and there"]}]}),
        ("search_nodes", {"query": "here"}),
        ("read_graph", {}),
        ("delete_entities", {"entityNames": ["A"]}),
    ]


SERVERS = {
    "filesystem": Real(lambda root: [*_reference("filesystem"), str(root)], _files),
    "time": Real(
        lambda _: _python("mcp_server_time", "--local-timezone", "UTC"),
        lambda _, __: [
            ("get_current_time", {"timezone": "Europe/Paris"}),
            ("convert_time", {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ],
    ),
    "git": Real(lambda root: _python("mcp_server_git", "--repository", str(root)), _git, from_trail=True),
    # Without the variable it writes into its own package, which a probe blames and a learned profile refuses.
    "memory": Real(lambda _: _reference("memory"), _memory, env=("MEMORY_FILE_PATH=/var/tmp/memory.jsonl",)),
    "everything": Real(
        lambda _: [*_reference("everything"), "stdio"],
        lambda _, __: [("echo", {"message": "hello"}), ("get-sum", {"a": 1, "b": 2}), ("get-tiny-image", {})],
        reaches=True,
    ),
    "fetch": Real(
        lambda _: _python("mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"),
        lambda _, site: [("fetch", {"url": f"{site}/page.txt"}), ("fetch", {"url": f"{site}/other.txt", "raw": True})],
        reaches=True,
    ),
    "playwright": Real(
        lambda _: [
            *(node(), str(PLAYWRIGHT), "--headless", "--no-sandbox", "--isolated"),
            *("--executable-path", "/usr/bin/chromium"),
        ],
        lambda _, site: [
            ("browser_navigate", {"url": f"{site}/page.txt"}),
            ("browser_snapshot", {}),
            ("browser_press_key", {"key": "a"}),
            ("browser_close", {}),
        ],
        from_trail=True,
        reaches=True,
    ),
}
USUAL = ("filesystem", "time")
# What libraries try, and do without: the C library to ask a name service that is not there, a browser to hear of
# devices, and to have memory that can be executed. No profile grants the last two.
TRIED = ("a unix socket", "socket of family 16", "memfd_create")


class Site(http.server.BaseHTTPRequestHandler):
    """A web site of one page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"there")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def _site() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="interlock-learned-", dir="/var/tmp"))
    (made / "policy.yaml").write_text(ALLOW)
    seed_cache(made / "state")
    yield made
    shutil.rmtree(made)


def _prepare(root: Path, name: str) -> None:
    """Make a folder as the server is to find it."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    (root / "a.txt").write_text("hello")
    if name != "git":
        return
    words = [["init", "-q"], ["config", "user.name", "t"], ["config", "user.email", "t@example.com"]]
    for each in (*words, ["add", "a.txt"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *each], cwd=root, check=True)
    (root / "a.txt").write_text("changed")


async def _ask(words: list[str], cwd: Path, calls: Calls, variables: Sequence[str]) -> list[str]:
    """Make the calls by the SDK's client; return what came back as an error."""
    failed = []
    env = environment(dict(each.split("=", 1) for each in variables))
    async with (
        stdio_client(StdioServerParameters(command=words[0], args=words[1:], env=env, cwd=cwd)) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        for tool, arguments in calls:
            result = await session.call_tool(tool, arguments)
            if result.is_error:
                failed.append(f"{tool}: {result.content}")
    return failed


def _use(folder: Path, server: Real, calls: Calls, *flags: str) -> list[str]:
    words = run_command(folder / "state", folder / "policy.yaml", server.command(folder / "root"), *flags)
    return asyncio.run(asyncio.wait_for(_ask(words, folder, calls, server.env), 4 * PATIENCE))


def _learn(folder: Path, server: Real, calls: Calls) -> str:
    """Learn a profile from a probe or from use; return the flag that puts it in force."""
    file = folder / "learned.yaml"
    source = ["--from", "probe", "--repeats", "0"]
    if server.from_trail:
        assert _use(folder, server, calls, "--server-name", "learner", "--trace", "require") == []
        source = ["--from", "trail", "--server", "learner"]
    words = [
        "sandbox",
        "learn",
        "--state-dir",
        str(folder / "state"),
        *source,
        *(f"--env={each}" for each in server.env),
        "-o",
        str(file),
    ]
    done = interlock_cli(*words, "--", *server.command(folder / "root"), cwd=folder)
    assert done.returncode == 0, done.stderr
    return f"--sandbox=require:{file}"


@pytest.mark.parametrize("name", SERVERS if FULL else USUAL)
def test_a_server_works_in_the_sandbox_that_was_learned_of_it(folder: Path, name: str) -> None:
    server, root = SERVERS[name], folder / "root"
    with ExitStack() as stack:
        port = stack.enter_context(_site())
        if server.reaches:
            stack.enter_context(start_interlock(folder, policy=KNOWN, program=["tests.daemon.named"]))
        _prepare(root, name)
        flag = _learn(folder, server, server.calls(root, f"http://127.0.0.1:{port}"))
        _prepare(root, name)
        calls = server.calls(root, f"http://site.test:{port}")
        assert _use(folder, server, calls, flag, "--trace", "require") == []
        events = read_trail(folder / "state")
    decided = [event for event in events if event["kind"] == "decided" and "sandbox" in event.get("detail", {})]
    assert {event["detail"]["sandbox"]["mode"] for event in decided} == {"enforce"}
    assert len([event for event in decided if event["method"] == "tools/call"]) == len(calls)
    refused = [event["detail"] for event in events if event["kind"] == "act_refused"]
    assert [detail for detail in refused if detail["target"] not in TRIED] == []
