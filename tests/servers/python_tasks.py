"""The Python SDK's server with the tasks extension of 2026-07-28: all that the conformance suite's scenarios ask for.

The SDK offers extensions a place to add methods and to answer tool calls in its stead, and leaves the rest to them.
`python_tasks.py --log FILE` serves /mcp; `python_tasks.py stdio FILE` serves stdin and stdout.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams, RequestParams

from tests.servers.common import ExecutionLog, parse_options, serve

EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
HEADER_MISMATCH = -32020
MODERN = frozenset({"2026-07-28"})
ENDED = ("completed", "failed", "cancelled")
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
COMPLETE: dict[str, Any] = {"resultType": "complete"}

type Answer = dict[str, Any]


class TaskParams(RequestParams):
    """The parameters of every `tasks/` method."""

    task_id: str = ""
    input_responses: dict[str, Any] | None = None


def now() -> str:
    return datetime.now(UTC).isoformat()


def text(words: str, *, is_error: bool = False) -> Answer:
    return {**COMPLETE, "content": [{"type": "text", "text": words}], "isError": is_error}


def elicit(message: str, *names: str) -> Answer:
    properties = {name: {"type": "string"} for name in names}
    schema = {"type": "object", "properties": properties, "required": list(names)}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


@dataclass
class Task:
    """One task, and what it waits for."""

    created: str = field(default_factory=now)
    task_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "working"
    result: Answer | None = None
    error: Answer | None = None
    pending: dict[str, Answer] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    def base(self) -> Answer:
        times = {"createdAt": self.created, "lastUpdatedAt": now(), "ttlMs": 600_000, "pollIntervalMs": 50}
        return {"taskId": self.task_id, "status": self.status, **times}

    def detailed(self) -> Answer:
        found = {**COMPLETE, **self.base()}
        if self.status == "input_required":
            found["inputRequests"] = self.pending
        if self.result is not None:
            found["result"] = self.result
        if self.error is not None:
            found["error"] = self.error
        return found

    async def ask(self, requests: dict[str, Answer]) -> dict[str, Any]:
        """Wait until the client has answered all of `requests`."""
        self.pending, self.status = dict(requests), "input_required"
        while self.pending:
            self.answered.clear()
            await self.answered.wait()
        self.status = "working"
        return self.answers

    async def run(self, tool: str, arguments: Answer) -> None:
        try:
            self.result = await TOOLS[tool](self, arguments)
            self.status = "completed"
        except asyncio.CancelledError:
            self.status = "cancelled"
        except RuntimeError as error:
            self.status, self.error = "failed", {"code": -32603, "message": str(error)}


async def slow_compute(_task: Task, arguments: Answer) -> Answer:
    await asyncio.sleep(arguments.get("seconds", 0))
    return text(f"computed {arguments.get('label', '')}")


async def failing_job(_task: Task, _arguments: Answer) -> Answer:
    return text("the job failed", is_error=True)


async def protocol_error_job(_task: Task, _arguments: Answer) -> Answer:
    raise RuntimeError("the server failed")


async def confirm_delete(task: Task, arguments: Answer) -> Answer:
    answers = await task.ask({"confirm": elicit(f"Delete {arguments.get('filename')}?", "confirm")})
    return text(f"answered: {answers['confirm']}")


async def multi_input(task: Task, _arguments: Answer) -> Answer:
    answers = await task.ask({"first": elicit("The first?", "value"), "second": elicit("The second?", "value")})
    return text(f"answered: {sorted(answers)}")


async def read_secret(_task: Task, _arguments: Answer) -> Answer:
    return text(f"the token is {SECRET}")


async def greet_later(_task: Task, arguments: Answer) -> Answer:
    return text(f"Hello, {arguments.get('user_name')}!")


TOOLS = {
    "slow_compute": slow_compute,
    "failing_job": failing_job,
    "protocol_error_job": protocol_error_job,
    "confirm_delete": confirm_delete,
    "multi_input": multi_input,
    "read_secret": read_secret,
    "test_tool_with_task": greet_later,
}
REQUIRED = ("failing_job", "test_tool_with_task")


class Tasks(Extension):
    """Answers the calls of TOOLS with tasks, and serves `tasks/get`, `tasks/update` and `tasks/cancel`."""

    identifier = EXTENSION

    def __init__(self, log: ExecutionLog) -> None:
        self._log = log
        self._tasks: dict[str, Task] = {}

    def methods(self) -> Sequence[MethodBinding]:
        handlers = {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}
        return [MethodBinding(name, TaskParams, handler, MODERN) for name, handler in handlers.items()]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        arguments = dict(params.arguments or {})
        self._log.executed(params.name, arguments)
        if params.name not in TOOLS:
            return await call_next(ctx)
        if not _declares(ctx):
            if params.name in REQUIRED:
                raise _undeclared()
            task = Task()
            await task.run(params.name, arguments)
            return task.result or text("failed", is_error=True)
        if params.name == "test_tool_with_task":
            given = (ctx.params or {}).get("inputResponses")
            if not given:
                asked = {"user_name": elicit("Who is it?", "name")}
                return {"resultType": "input_required", "inputRequests": asked, "requestState": "waiting"}
            arguments["user_name"] = given["user_name"]["content"]["name"]
        task = Task()
        self._tasks[task.task_id] = task
        created = {"resultType": "task", **task.base()}
        task.work = asyncio.create_task(task.run(params.name, arguments))
        return created

    def _find(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Task:
        if not _declares(ctx):
            raise _undeclared()
        named = ctx.request.headers.get("mcp-name") if ctx.request is not None else None
        if named is not None and named != params.task_id:
            raise MCPError(HEADER_MISMATCH, "Mcp-Name is not the task's id")
        if params.task_id not in self._tasks:
            raise MCPError(INVALID_PARAMS, "no such task")
        return self._tasks[params.task_id]

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        return self._find(ctx, params).detailed()

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        task = self._find(ctx, params)
        for key, answer in (params.input_responses or {}).items():
            if task.pending.pop(key, None) is not None:
                task.answers[key] = answer
        task.answered.set()
        return COMPLETE

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        task = self._find(ctx, params)
        if task.work is not None and task.status not in ENDED:
            task.work.cancel()
        return COMPLETE


def _declares(ctx: ServerRequestContext[Any, Any]) -> bool:
    meta = (ctx.params or {}).get("_meta") or {}
    extensions = (meta.get(CAPABILITIES) or {}).get("extensions")
    return EXTENSION in (extensions or {})


def _undeclared() -> MCPError:
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        "the client does not declare tasks",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def make_task_server(log: ExecutionLog) -> MCPServer:
    server = MCPServer("interlock-test-tasks", log_level="CRITICAL", extensions=[Tasks(log)])

    @server.tool()
    def greet(name: str) -> str:
        """Greet at once."""
        return f"Hello, {name}!"

    def add(name: str) -> None:
        @server.tool(name=name, structured_output=False)
        def stand_in(
            seconds: float = 0, label: str = "", filename: str = "", user_name: str = ""
        ) -> str:  # never runs: the extension answers
            """Run as a task."""
            return ""

    for name in TOOLS:
        add(name)
    return server


def main() -> None:
    if sys.argv[1:2] == ["stdio"]:
        make_task_server(ExecutionLog(Path(sys.argv[2]))).run("stdio")
        return
    options = parse_options()
    app = make_task_server(ExecutionLog(options.log)).streamable_http_app(
        json_response=options.json, stateless_http=options.stateless, host=options.host
    )
    serve(app, options)


if __name__ == "__main__":
    main()
