"""`interlock call`: the SDK's client through the proxy, over every transport."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import (
    Interlock,
    ServerHandle,
    environment,
    interlock_cli,
    seed_cache,
    start_interlock,
    start_python_server,
)
from tests.support.processes import module_command

REFUSED, ERROR = 3, 1
POLICY = """
version: 1
default: allow
rules: [{id: no-danger, action: deny, tools: [danger]}]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Interlock, dict[str, ServerHandle]]]:
    folder = tmp_path_factory.mktemp("call")
    with (
        start_python_server("python_modern", folder / "http") as http,
        start_python_server("python_sse", folder / "sse") as sse,
        start_interlock(folder / "proxy", policy=POLICY) as interlock,
    ):
        yield interlock, {"http": http, "sse": sse}


def stdio_server(log: Path) -> list[str]:
    return module_command("tests.servers.python_stdio", str(log), env=environment())


def url(servers: dict[str, ServerHandle], transport: str) -> str:
    return f"{servers[transport].url}/{'sse' if transport == 'sse' else 'mcp'}"


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_tool_is_called_through_the_proxy(world: tuple[Interlock, dict[str, ServerHandle]], transport: str) -> None:
    interlock, servers = world
    words = ["call", url(servers, transport), "--transport", transport]
    told = interlock.cli(*words, "echo", "text=hi", "--json")
    assert told.returncode == 0, told.stderr
    report = json.loads(told.stdout)
    assert (report["decision"], report["result"]["content"][0]["text"]) == ("allow", "hi")
    assert report["audit_id"] in {event["event_id"] for event in interlock.events()}
    shown = interlock.cli(*words, "echo", "text=hi")
    assert (shown.returncode, shown.stdout) == (0, "hi\n")
    assert re.fullmatch(
        r"decision allow, reason default_allow\nmore: interlock audit show [0-9a-f-]{36}\n", shown.stderr
    )
    servers[transport].new_executions()
    denied = interlock.cli(*words, "danger", "--json")
    assert denied.returncode == REFUSED, denied.stderr
    report = json.loads(denied.stdout)
    assert (report["decision"], report["reason"], report["rule"]) == ("deny", "policy_denied", "no-danger")
    assert servers[transport].new_executions() == []


def test_without_a_tool_the_tools_that_policy_allows_are_listed(
    world: tuple[Interlock, dict[str, ServerHandle]],
) -> None:
    interlock, servers = world
    told = interlock.cli("call", url(servers, "http"))
    assert told.returncode == 0, told.stderr
    names = [line.split()[0] for line in told.stdout.splitlines()]
    assert names[0] == "tool"
    assert "echo" in names
    assert "danger" not in names
    as_json = [json.loads(line) for line in interlock.cli("call", url(servers, "http"), "--json").stdout.splitlines()]
    assert {"name", "inputSchema"} <= as_json[0].keys()


def test_a_local_server_is_called_behind_the_gate(
    world: tuple[Interlock, dict[str, ServerHandle]], tmp_path: Path
) -> None:
    interlock, _ = world
    policy = {"INTERLOCK_POLICY": str(interlock.run["policy"]), "INTERLOCK_STATE_DIR": str(tmp_path / "state")}
    seed_cache(tmp_path / "state")
    command = ["--", *stdio_server(tmp_path / "executions")]
    told = interlock_cli("call", "files", "echo", "text=hi", "--json", *command, env=policy)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["result"]["content"][0]["text"] == "hi"
    denied = interlock_cli("call", "files", "danger", *command, env=policy)
    assert denied.returncode == REFUSED
    assert "Refused by Interlock (policy_denied)" in denied.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:1/mcp"], "error: http://127.0.0.1:1/mcp cannot be called"),
        (["files"], "error: 'files' is not a URL; for a local server write: interlock call files [TOOL] -- COMMAND"),
        (["http://127.0.0.1:1/mcp", "--", "true"], "error: 'http://127.0.0.1:1/mcp' is a URL, so there is nothing to"),
        (["x", "echo", "text", "--", "SERVER"], "error: 'text' is not an argument"),
        (["x", "--", "false"], "error: x cannot be called"),
    ],
)
def test_what_cannot_be_called_is_one_message(
    world: tuple[Interlock, dict[str, ServerHandle]], words: list[str], said: str
) -> None:
    at = words.index("--") if "--" in words else len(words)
    flags = ["--state-dir", str(world[0].state_dir)]
    command = ["--", *stdio_server(Path("/dev/null"))] if words[-1] == "SERVER" else words[at:]
    told = interlock_cli("call", *words[:at], *flags, *command)
    assert told.returncode == ERROR
    assert said in told.stderr
    assert "Traceback" not in told.stderr
