"""The SDK's client over stdio, through `interlock run`, to the SDK's own server and to server-everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.harness import DENY_ALL_DANGER, REPOSITORY, environment, interlock_cli, seed_cache
from tests.support.node_tools import MODULES, node
from tests.support.processes import module_command
from tests.support.stdio_harness import run_command
from tests.support.trail_reader import read_trail

DENIAL = "mcp-interlock/denial"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
ERAS = ["legacy", "2026-07-28", "auto"]
MASKING = (
    DENY_ALL_DANGER
    + """\
  - {id: scrub, action: redact, tools: ["*"], on: [arguments, result], detectors: [secrets]}
"""
)
ENFORCING = DENY_ALL_DANGER.replace("rules:", "pins: {mode: enforce}\nrules:")


class Scene:
    """A server's command, and a client's ways to it."""

    def __init__(self, directory: Path, command: list[str], log: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.policy = directory / "policy.yaml"
        self.policy.write_text(DENY_ALL_DANGER)
        self.log = log
        self._command = command
        seed_cache(self.state)

    @asynccontextmanager
    async def client(self, era: str, *, name: str = "server", **options: Any) -> AsyncIterator[Client]:
        command = run_command(self.state, self.policy, self._command, "--server-name", name)
        parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=REPOSITORY, env=environment())
        with (self.directory / "stderr").open("a") as errors:
            async with Client(stdio_client(parameters, errors), mode=era, **options) as client:
                yield client

    def executed(self) -> list[str]:
        lines = self.log.read_bytes().splitlines() if self.log.exists() else []
        return [json.loads(line)["tool"] for line in lines]

    def events(self) -> list[dict[str, Any]]:
        return read_trail(self.state)


@pytest.fixture
def python_server(tmp_path: Path) -> Scene:
    log = tmp_path / "executed.log"
    return Scene(tmp_path, module_command("tests.servers.python_stdio", str(log), env=environment()), log)


@pytest.fixture
def everything(tmp_path: Path) -> Scene:
    entry = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    return Scene(tmp_path, [node(), str(entry), "stdio"], tmp_path / "none")


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
async def test_a_denied_tool_is_refused_and_the_session_lives_on(era: str, python_server: Scene) -> None:
    async with python_server.client(era, name="files") as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert "echo" in listed
        assert "danger" not in listed
        assert text_of(await client.call_tool("echo", {"text": "ä€😀\u2028"})) == "ä€😀\u2028"
        refused = await client.call_tool("danger", {"note": "x"})
        assert refused.is_error
        denial = (refused.meta or {})[DENIAL]
        assert denial["rule"] == "no-danger"
        structured = await client.call_tool("structured", {"n": 7})
        assert structured.structured_content == {"n": 7}
        long = "x" * 300_000
        assert text_of(await client.call_tool("echo", {"text": long})) == long
    assert python_server.executed() == ["echo", "structured", "echo"]
    (event,) = [e for e in python_server.events() if e.get("call_id") == denial["audit_id"]]
    assert (event["server"], event["transport"], event["decision"]) == ("files", "stdio", "deny")
    revisions = {e.get("revision") for e in python_server.events() if e.get("tool") == "echo"}
    assert len(revisions) == 1
    assert all(revisions)


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_calls_overlap_and_progress_comes_at_once(era: str, python_server: Scene) -> None:
    heard: list[float] = []

    async def progress(value: float, *_: object) -> None:
        heard.append(value)

    async with python_server.client(era) as client:
        slow = asyncio.create_task(client.call_tool("slow", {"ms": 60_000}, progress_callback=progress))
        calls = [client.call_tool(*each) for each in [("echo", {"text": "x"}), ("danger", {})] * 5]
        results = await asyncio.gather(*calls)
        assert not slow.done()
        python_server.log.with_suffix(".wake").touch()
        assert text_of(await slow) == "slept 60000 ms"
    assert [result.is_error for result in results] == [False, True] * 5
    assert heard == [0.0]


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_secrets_are_masked_on_both_ways_and_on_record(era: str, python_server: Scene) -> None:
    python_server.policy.write_text(MASKING)
    async with python_server.client(era) as client:
        result = await client.call_tool("echo", {"text": f"my key is {SECRET}"})
    assert text_of(result).startswith("my key is ")
    assert SECRET not in json.dumps(result.model_dump(mode="json"))
    assert SECRET not in python_server.log.read_text()
    assert SECRET not in json.dumps(python_server.events())


async def test_a_tool_that_was_never_listed_is_held_back_where_pins_are_enforced(python_server: Scene) -> None:
    python_server.policy.write_text(ENFORCING)
    async with python_server.client("2026-07-28") as client:
        early = await client.call_tool("echo", {"text": "x"})
        await client.list_tools()
        later = await client.call_tool("echo", {"text": "x"})
    assert (early.meta or {})[DENIAL]["reason"] == "tool_not_pinned"
    assert not later.is_error
    assert python_server.executed() == ["echo"]
    listed = interlock_cli("pins", "list", "--json", "--state-dir", str(python_server.state))
    assert {json.loads(line)["server"] for line in listed.stdout.splitlines()} == {"server"}


async def test_the_reference_server_works_as_it_does_without(everything: Scene) -> None:
    everything.policy.write_text(
        "version: 1\ndefault: allow\nrules:\n  - {id: no-sum, action: deny, tools: [get-sum]}\n"
    )
    heard: list[Any] = []

    async def sampling(*_: object) -> Any:
        from mcp_types import CreateMessageResult, TextContent

        heard.append("sampling")
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="sampled"), model="m")

    async with everything.client("legacy", sampling_callback=sampling) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert "echo" in tools
        assert "get-sum" not in tools
        assert "hi" in text_of(await client.call_tool("echo", {"message": "hi"}))
        assert (await client.call_tool("get-sum", {"a": 1, "b": 2})).is_error
        assert (await client.list_resources()).resources
        assert (await client.list_prompts()).prompts
        if "trigger-sampling-request" in tools:
            sampled = await client.call_tool("trigger-sampling-request", {"prompt": "x", "maxTokens": 10})
            assert "sampled" in text_of(sampled)
            assert heard == ["sampling"]


async def test_the_records_of_two_runs_and_their_tail(python_server: Scene) -> None:
    async with python_server.client("legacy", name="a") as first, python_server.client("legacy", name="b") as second:
        for number in range(3):
            await first.call_tool("echo", {"text": str(number)})
            await second.call_tool("echo", {"text": str(number)})
    tail = interlock_cli("audit", "tail", "-n", "500", "--json", "--state-dir", str(python_server.state))
    events = [json.loads(line) for line in tail.stdout.splitlines()]
    calls = [e["server"] for e in events if e["kind"] == "decided" and e.get("tool") == "echo"]
    assert calls == ["a", "b"] * 3
    assert [e["time"] for e in events] == sorted(e["time"] for e in events)
