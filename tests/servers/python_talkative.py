"""The Python SDK's server in all that MCP has beside tool results: each of it with a secret in it.

`python_talkative.py --log FILE` serves /mcp; `python_talkative.py stdio FILE` serves stdin and stdout. The log says
what the client answered to the server's own requests.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from tests.servers.common import ExecutionLog, parse_options, serve

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
INSTRUCTIONS = "Ask for the weather in plain words."


class Word(BaseModel):
    """What a person is asked for."""

    word: str


# At the module's level: the SDK evaluates the annotations that name them there.
def ask() -> Elicit[Word]:
    return Elicit(f"Which word goes with {SECRET}?", Word)


def sample() -> Sample:
    words = TextContent(type="text", text=f"Continue: {SECRET}")
    return Sample([SamplingMessage(role="user", content=words)], max_tokens=10)


def roots() -> ListRoots:
    return ListRoots()


def make_talkative_server(log: ExecutionLog, instructions: str = INSTRUCTIONS) -> MCPServer:
    server = MCPServer("interlock-test-talkative", instructions=instructions, log_level="CRITICAL")
    _add_things_to_read(server)
    _add_tools(server)
    _add_questions(server, log)
    return server


def _add_things_to_read(server: MCPServer) -> None:
    @server.resource("res://token")
    def token() -> str:
        """Return a resource with a secret."""
        return f"token: {SECRET}"

    @server.prompt()
    def letter() -> str:
        """Return a prompt with a secret."""
        return f"Write to {SECRET}"

    @server.completion()
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion:
        return Completion(values=[SECRET])


def _add_tools(server: MCPServer) -> None:
    @server.tool()
    async def chat(ctx: Context) -> str:
        """Report progress and write to the log, each with a secret."""
        await ctx.report_progress(0, 1, f"with {SECRET}")
        await ctx.info(f"using {SECRET}")
        return "done"

    @server.tool()
    def fail() -> str:
        """Fail with an error that has a secret in it."""
        raise MCPError(-32000, f"cannot log in with {SECRET}", {"tried": SECRET})


def _add_questions(server: MCPServer, log: ExecutionLog) -> None:
    @server.tool()
    def ask_person(answer: Annotated[ElicitationResult[Word], Resolve(ask)]) -> str:
        """Ask the person at the client."""
        log.executed("ask_person", answer.model_dump(mode="json"))
        return "asked"

    @server.tool()
    def ask_model(answer: Annotated[CreateMessageResult, Resolve(sample)]) -> str:
        """Ask the client's model."""
        log.executed("ask_model", answer.model_dump(mode="json"))
        return "asked"

    @server.tool()
    def ask_roots(answer: Annotated[ListRootsResult, Resolve(roots)]) -> str:
        """Ask for the client's folders."""
        log.executed("ask_roots", answer.model_dump(mode="json"))
        return "asked"


def main() -> None:
    words: list[Any] = sys.argv[1:]
    if words[:1] == ["stdio"]:
        make_talkative_server(ExecutionLog(Path(words[1])), *words[2:]).run("stdio")
        return
    options = parse_options()
    app = make_talkative_server(ExecutionLog(options.log)).streamable_http_app(
        json_response=options.json, stateless_http=options.stateless, host=options.host
    )
    serve(app, options)


if __name__ == "__main__":
    main()
