"""The Python SDK's client, through Interlock, to the SDK's servers.

A denial must reach the client at once and plainly, the session must live on, and the
server's own log must show that the denied tool never ran.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.acceptance.python_routes import Mode, Route, Routes, Server
from tests.support.harness import DENY_ALL_DANGER
from tests.support.timeouts import PATIENCE

DENIAL = "mcp-interlock/denial"
AT_ONCE = PATIENCE / 2  # half of what a client that hears nothing waits for
MODERN = "2026-07-28"
STREAMABLE = [
    Server("python_modern"),
    Server("python_modern", ("--json",)),
    Server("python_modern", ("--stateless",)),
    Server("python_modern", ("--stateless", "--json")),
    Server("python_modern", ("--resumable",)),
]
SSE = Server("python_sse")
PAIRS = [*((server, era) for server in STREAMABLE for era in ("legacy", MODERN, "auto")), (SSE, "legacy")]
WITH_ERRORS = DENY_ALL_DANGER.replace("tools: [danger]\n", "tools: [danger]\n    respond: error\n")


@pytest.fixture
def route(request: pytest.FixtureRequest, routes: Routes) -> Route:
    """Lead to the parameter's server in the parameter's mode."""
    return routes.to(*request.param)


def cases(*modes: Mode) -> list[Any]:
    return [
        pytest.param((mode, server), era, id=f"{mode}-{server.label}-{era}") for mode in modes for server, era in PAIRS
    ]


async def echo(client: Client, text: str) -> None:
    result = await client.call_tool("echo", {"text": text})
    assert not result.is_error
    assert result.content[0].text == text  # type: ignore[union-attr]


@pytest.mark.parametrize(("route", "era"), cases("direct"), indirect=["route"])
async def test_without_interlock_the_tool_runs(route: Route, era: str) -> None:
    async with route.client(era) as client:
        await echo(client, "first")
        result = await client.call_tool("danger", {"note": "x"})
    assert not result.is_error
    assert route.executed() == ["echo", "danger"]


@pytest.mark.parametrize(("route", "era"), cases("connect", "plain", "reverse"), indirect=["route"])
async def test_a_denied_tool_is_refused_at_once_and_the_session_lives_on(route: Route, era: str) -> None:
    async with route.client(era) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert "echo" in listed
        assert "danger" not in listed, "a tool that is always denied was shown"
        await echo(client, "first")
        started = time.monotonic()
        result = await client.call_tool("danger", {"note": "x"})
        seconds = time.monotonic() - started
        await echo(client, "second")
    assert seconds < AT_ONCE
    assert result.is_error
    denial = (result.meta or {})[DENIAL]
    assert denial["rule"] == "no-danger"
    assert denial["retryable"] is False
    assert denial["reason"] in result.content[0].text  # type: ignore[union-attr]
    assert denial["audit_id"] in result.content[0].text  # type: ignore[union-attr]
    assert route.executed() == ["echo", "echo"]


@pytest.mark.parametrize(("route", "era"), cases("connect"), indirect=["route"])
async def test_the_audit_id_leads_to_the_record(route: Route, era: str) -> None:
    async with route.client(era) as client:
        result = await client.call_tool("read_file", {"path": "/etc/passwd"})
    denial = (result.meta or {})[DENIAL]
    assert route.interlock
    event = next(each for each in route.interlock.events() if each.get("call_id") == denial["audit_id"])
    assert (event["decision"], event["tool"], event["rule"]) == ("deny", "read_file", "no-system-files")
    assert event["server"].endswith(str(route.server.port))


@pytest.mark.parametrize(("route", "era"), cases("plain"), indirect=["route"])
async def test_results_come_through_whole(route: Route, era: str) -> None:
    async with route.client(era) as client:
        structured = await client.call_tool("structured", {"n": 7})
        long = "ä€\U0001f600" * 20_000
        await echo(client, long)
    assert structured.structured_content == {"n": 7}


@pytest.mark.parametrize(("route", "era"), cases("plain"), indirect=["route"])
async def test_denied_and_allowed_calls_may_overlap(route: Route, era: str) -> None:
    async with route.client(era) as client:
        calls = [client.call_tool(*call) for call in [("echo", {"text": "x"}), ("danger", {})] * 5]
        results = await asyncio.gather(*calls)
    assert [result.is_error for result in results] == [False, True] * 5
    assert route.executed() == ["echo"] * 5


errors = [
    pytest.param(("plain", server, WITH_ERRORS), era, id=f"{server.label}-{era}")
    for server, era in ((STREAMABLE[0], "legacy"), (STREAMABLE[0], MODERN), (SSE, "legacy"))
]


@pytest.mark.parametrize(("route", "era"), errors, indirect=["route"])
async def test_a_rule_that_responds_with_an_error_raises_in_the_client(route: Route, era: str) -> None:
    async with route.client(era) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("danger", {})
        await echo(client, "still here")
    assert raised.value.error.code == 40301
    assert raised.value.error.data["rule"] == "no-danger"
    assert route.executed() == ["echo"]
