"""The reference server-everything, through Interlock, with the Python SDK's client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import get_args

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.types import ImageContent, TextContent

from tests.support.harness import start_interlock
from tests.support.node_tools import EverythingTransport, endpoint_path, start_everything
from tests.support.timeouts import PATIENCE

POLICY = """\
version: 1
default: allow
rules:
  - id: no-environment
    description: The server's environment is nobody's business
    action: deny
    tools: [get-env]
"""


@pytest.fixture(scope="module", params=get_args(EverythingTransport.__value__))
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL that leads through Interlock in reverse mode to a server-everything."""
    directory = tmp_path_factory.mktemp("everything")
    with (
        start_everything(request.param, directory) as server,
        start_interlock(directory, mode=f"reverse:{server.url}", policy=POLICY) as interlock,
    ):
        yield interlock.url + endpoint_path(request.param)


def connect(endpoint: str) -> Client:
    return Client(sse_client(endpoint) if endpoint.endswith("/sse") else endpoint, read_timeout_seconds=PATIENCE)


async def call_text(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    content = result.content[0]
    assert isinstance(content, TextContent)
    return content.text


async def test_lists_and_calls_pass_unharmed(endpoint: str) -> None:
    async with connect(endpoint) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert {"echo", "get-sum"} <= listed
        assert "get-env" not in listed, "a tool that is always denied was shown"
        assert await call_text(client, "echo", message="übergröße ✓") == "Echo: übergröße ✓"
        assert "5" in await call_text(client, "get-sum", a=2, b=3)
        weather = await client.call_tool("get-structured-content", {"location": "New York"})
        assert weather.structured_content == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
        image = await client.call_tool("get-tiny-image", {})
        assert any(isinstance(part, ImageContent) for part in image.content)


async def test_resources_and_prompts_pass_unharmed(endpoint: str) -> None:
    async with connect(endpoint) as client:
        resource = (await client.list_resources()).resources[0]
        assert (await client.read_resource(str(resource.uri))).contents
        assert "simple-prompt" in {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert (await client.get_prompt("simple-prompt")).messages


async def test_progress_arrives_while_the_tool_runs(endpoint: str) -> None:
    arrived = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        arrived.set()

    async with connect(endpoint) as client:
        arguments = {"duration": 4 * PATIENCE, "steps": 16 * PATIENCE}
        running = asyncio.create_task(
            client.call_tool("trigger-long-running-operation", arguments, progress_callback=note)
        )
        await asyncio.wait_for(arrived.wait(), PATIENCE / 2)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_denied_tool_is_refused_and_the_session_lives_on(endpoint: str) -> None:
    async with connect(endpoint) as client:
        assert await call_text(client, "echo", message="before") == "Echo: before"
        async with asyncio.timeout(PATIENCE / 2):
            refused = await client.call_tool("get-env", {})
        assert refused.is_error
        assert refused.meta is not None
        assert refused.meta["mcp-interlock/denial"]["rule"] == "no-environment"
        assert "PATH" not in refused.model_dump_json()
        assert await call_text(client, "echo", message="after") == "Echo: after"
