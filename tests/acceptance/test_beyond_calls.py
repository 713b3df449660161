"""All of MCP beside tool results, with the Python SDK on both ends, over HTTP and stdio, in both eras.

The shipped policy masks secrets in all of it, both ways. A deny on a request of the server's stops it, whether it
comes as a message (up to 2025-11-25) or inside a result (2026-07-28), and both ends are told in a way they understand.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, PromptReference, Root, TextContent

from tests.servers.python_talkative import SECRET
from tests.support.harness import (
    REPOSITORY,
    Interlock,
    ServerHandle,
    environment,
    seed_cache,
    start_interlock,
    start_python_server,
)
from tests.support.processes import module_command
from tests.support.stdio_harness import run_command
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail

type Transport = Literal["http", "json", "stdio"]

ERAS = ["legacy", "2026-07-28"]
TRANSPORTS: list[Transport] = ["http", "json", "stdio"]
SHIPPED = (REPOSITORY / "policies" / "default.yaml").read_text()
DENYING = """\
version: 1
default: allow
rules:
  - {id: no-questions, description: Nobody is asked, action: deny, methods: [elicitation/create]}
  - {id: no-sampling, description: The model is ours, action: deny, methods: [sampling/createMessage]}
  - id: no-passwords
    action: deny
    methods: [response]
    when: {arg: "result.roots[*].name", equals: forbidden}
"""
ANSWER = "glpat-" + "zY9xW8vU7tS6rQ5pO4nM"


@dataclass
class Heard:
    """What reached the client beside results."""

    said: list[str] = field(default_factory=list)
    root: str = "home"

    async def elicit(self, _context: Any, params: Any) -> ElicitResult:
        self.said.append(params.message)
        return ElicitResult(action="accept", content={"word": ANSWER})

    async def sample(self, _context: Any, params: Any) -> CreateMessageResult:
        self.said.append(params.messages[0].content.text)
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=ANSWER), model="m")

    async def roots(self, _context: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=f"file:///{ANSWER}", name=self.root)])

    async def log(self, params: Any) -> None:
        self.said.append(str(params.data))

    async def progress(self, _done: float, _total: float | None, message: str | None) -> None:
        self.said.append(message or "")

    def options(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "logging_callback": self.log,
        }


class Scene:
    """One talkative server behind Interlock, by each transport; a policy has a proxy of its own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._servers: dict[str, ServerHandle] = {}
        self._proxies: dict[tuple[str, str], Interlock] = {}

    def client(
        self, transport: Transport, policy: str, era: str, heard: Heard
    ) -> AbstractAsyncContextManager[tuple[Client, Path, Path]]:
        """Return a client, the server's log, and the state folder of its Interlock."""
        return (self._stdio if transport == "stdio" else self._http)(transport, policy, era, heard)

    @asynccontextmanager
    async def _http(
        self, transport: str, policy: str, era: str, heard: Heard
    ) -> AsyncIterator[tuple[Client, Path, Path]]:
        if transport not in self._servers:
            flags = ["--json"] if transport == "json" else []
            started = start_python_server("python_talkative", self._directory / transport, flags=flags)
            self._servers[transport] = self._stack.enter_context(started)
        server = self._servers[transport]
        if (transport, policy) not in self._proxies:
            folder = self._directory / f"{transport}{len(self._proxies)}"
            started_proxy = start_interlock(folder, mode=f"reverse:{server.url}", policy=policy)
            self._proxies[transport, policy] = self._stack.enter_context(started_proxy)
        proxy = self._proxies[transport, policy]
        async with Client(f"{proxy.url}/mcp", mode=era, read_timeout_seconds=PATIENCE, **heard.options()) as client:
            yield client, server.log, proxy.state_dir

    @asynccontextmanager
    async def _stdio(
        self, _transport: str, policy: str, era: str, heard: Heard
    ) -> AsyncIterator[tuple[Client, Path, Path]]:
        folder = self._directory / f"stdio{era}{hash(policy)}"
        folder.mkdir(exist_ok=True)
        state, policy_file, log = folder / "state", folder / "policy.yaml", folder / "log"
        policy_file.write_text(policy)
        seed_cache(state)
        server = module_command("tests.servers.python_talkative", "stdio", str(log), env=environment())
        command = run_command(state, policy_file, server, "--server-name", "talkative")
        parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=REPOSITORY, env=environment())
        with (folder / "stderr").open("a") as errors:
            transport = stdio_client(parameters, errors)
            async with Client(transport, mode=era, read_timeout_seconds=PATIENCE, **heard.options()) as client:
                yield client, log, state


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("talkative"), stack)


def executed(log: Path, tool: str) -> str:
    """Return what the server noted of a tool that it ran last."""
    lines = log.read_text().splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if json.loads(line)["tool"] == tool), "")


async def refusal(client: Client, tool: str) -> str:
    """Return how a call was refused: a server that gets an error for its request may pass it on as an error."""
    try:
        result = await client.call_tool(tool, {})
    except MCPError as error:
        return error.error.model_dump_json()
    assert result.is_error
    return result.model_dump_json()


def skip_what_has_no_way_back(transport: Transport, era: str) -> bool:
    """Return whether a server that answers with JSON alone can ask: before 2026-07-28 it needs a stream for that."""
    return transport == "json" and era == "legacy"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_shipped_policy_masks_what_servers_send(scene: Scene, transport: Transport, era: str) -> None:
    heard = Heard()
    async with scene.client(transport, SHIPPED, era, heard) as (client, _log, _state):
        read = await client.read_resource("res://token")
        prompt = await client.get_prompt("letter")
        completed = await client.complete(PromptReference(type="ref/prompt", name="letter"), {"name": "x", "value": ""})
        with pytest.raises(MCPError) as failed:
            await client.call_tool("fail", {})
        chatted = await client.call_tool("chat", {}, progress_callback=heard.progress)
    for found in (read, prompt, completed, failed.value.error):
        assert SECRET not in found.model_dump_json(), found
        assert "[secret:" in found.model_dump_json(), found
    assert not chatted.is_error
    assert SECRET not in "".join(heard.said)
    # A server that answers with JSON alone has no stream for what comes before the answer.
    if transport != "json":
        assert "[secret:" in "".join(heard.said)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_shipped_policy_masks_questions_and_answers(scene: Scene, transport: Transport, era: str) -> None:
    heard = Heard()
    if skip_what_has_no_way_back(transport, era):
        return
    async with scene.client(transport, SHIPPED, era, heard) as (client, log, _state):
        for tool in ("ask_person", "ask_model", "ask_roots"):
            assert not (await client.call_tool(tool, {})).is_error
    assert len(heard.said) == 2
    for said in heard.said:
        assert SECRET not in said
        assert "[secret:" in said
    for tool in ("ask_person", "ask_model", "ask_roots"):
        assert ANSWER not in executed(log, tool)
        assert "[secret:" in executed(log, tool)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_denied_question_reaches_nobody_and_both_ends_are_told(
    scene: Scene, transport: Transport, era: str
) -> None:
    heard = Heard(root="forbidden")
    if skip_what_has_no_way_back(transport, era):
        return
    async with scene.client(transport, DENYING, era, heard) as (client, log, state):
        before = executed(log, "ask_person"), executed(log, "ask_model"), executed(log, "ask_roots")
        assert "no-questions" in await refusal(client, "ask_person")
        assert "no-sampling" in await refusal(client, "ask_model")
        if era != "legacy":
            assert "no-passwords" in await refusal(client, "ask_roots")
        chatted = await client.call_tool("chat", {})  # the session lives on
        assert not chatted.is_error
        assert (executed(log, "ask_person"), executed(log, "ask_model"), executed(log, "ask_roots")) == before
    assert not [said for said in heard.said if "Which word" in said or "Continue" in said]
    denied = {event["rule"] for event in read_trail(state) if event.get("decision") == "deny"}
    assert denied >= {"no-questions", "no-sampling"}
