"""A Python SDK server whose tools are what a JSON file says at the moment: pages of tool objects.

The file stands beside the execution log, with the suffix `.tools`. Any tool that is
called is executed, listed or not. Files with the suffixes `.prompts` (a list) and `.instructions`
(text) say the rest. `--legacy` serves HTTP+SSE (2024-11-05) in place of /mcp.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    TextContent,
    Tool,
)

from tests.servers.common import ExecutionLog, parse_options, serve


class ChangingServer(MCPServer):
    def __init__(self, tools: Path, log: ExecutionLog) -> None:
        self._file, self._executions = tools, log
        super().__init__("interlock-test-changing")
        said = tools.with_suffix(".instructions")
        read = property(lambda _: said.read_text() if said.exists() else None)
        low = self._lowlevel_server
        low.__class__ = type("Changing", (type(low),), {"instructions": read})

    async def _handle_list_prompts(self, ctx: Any, params: PaginatedRequestParams | None) -> ListPromptsResult:
        file = self._file.with_suffix(".prompts")
        prompts = json.loads(file.read_bytes()) if file.exists() else []
        return ListPromptsResult(prompts=[Prompt.model_validate(prompt) for prompt in prompts])

    async def _handle_list_tools(self, ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        pages = json.loads(self._file.read_bytes())
        number = int(params.cursor) if params and params.cursor else 0
        following = str(number + 1) if number + 1 < len(pages) else None
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in pages[number]], next_cursor=following)

    async def _handle_call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        self._executions.executed(params.name, params.arguments)
        return CallToolResult(content=[TextContent(type="text", text="ran")])


def main() -> None:
    legacy = "--legacy" in sys.argv
    options = parse_options([flag for flag in sys.argv[1:] if flag != "--legacy"])
    server = ChangingServer(options.log.with_suffix(".tools"), ExecutionLog(options.log))
    if legacy:
        serve(server.sse_app(), options)
    else:
        serve(server.streamable_http_app(json_response=options.json, stateless_http=options.stateless), options)


if __name__ == "__main__":
    main()
