"""`interlock call`: calls a tool of an MCP server through the proxy, with the official SDK as the client."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer
from rich.text import Text
from typer.core import TyperCommand

from proxy.agent.call_arguments import read_arguments
from proxy.audit.reader import open_audit
from proxy.commands.options import AsJson, takes
from proxy.commands.proxy_address import EndpointOptions, Up, endpoint, find_running
from proxy.commands.terminal import format_json, print_note, print_table, printable, printable_lines, stdout_console
from proxy.config import Settings, load_settings
from proxy.core.event import CallRecord, Filter
from proxy.errors import ConfigError, InterlockError
from proxy.wire.refusal_messages import DENIAL_META

if TYPE_CHECKING:
    from typer._click import Context

    from proxy.commands.mcp_session import LocalServer, RemoteServer, Transports

EPILOG = """
Examples:
  interlock call https://mcp.example.com/mcp
  interlock call https://mcp.example.com/mcp read_file path=/etc/passwd
  interlock call http://127.0.0.1:3000/mcp search query=cats limit:=5 --json
  interlock call files read_file path=notes.txt -- npx -y @modelcontextprotocol/server-filesystem .
"""
SECONDS = 60.0
TRAIL_SECONDS = 5.0
REFUSED, FAILED = 3, 4
_COMMAND = "interlock.command"


class CommandClass(TyperCommand):
    """Sets aside what follows `--`: the command of a local server, whose options are its own."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@takes(EndpointOptions)
def call(
    options: EndpointOptions,
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="URL|NAME", help="The server's URL; or a name for the local server after --.")
    ],
    tool: Annotated[
        str | None, typer.Argument(metavar="TOOL", help="The tool; without it, the server's tools are listed.")
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Its arguments.")] = None,
    transport: Annotated[
        Literal["http", "sse"], typer.Option(help="How a URL is spoken to; sse: HTTP+SSE of 2024-11-05.")
    ] = "http",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the answer.")] = SECONDS,
    up: Up = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Call a tool of an MCP server through the proxy, or list the server's tools.

    A server with a URL is called through the running proxy. A local server is started by `interlock run`
    with the command after --. A value is text or JSON, as the tool's schema says; KEY:=JSON is always JSON.

    Exit code: 0 if the tool answered, 3 if Interlock refused the call, 4 if the tool answered with an
    error, 1 for any other error.
    """
    from proxy.commands.mcp_session import call_tool, list_tools, run_session  # noqa: PLC0415  half a second

    shown, began = printable(target), time.time()
    settings, server = _server(options, target, ctx.meta[_COMMAND], transport, timeout, up=up)
    if tool is None:
        _show_tools(run_session(list_tools(server, timeout), shown), as_json=as_json)
        return
    result = run_session(call_tool(server, tool, partial(read_arguments, arguments or []), timeout), shown)
    # The trail of a proxy that --listen names is elsewhere.
    record = None if options.listen else _record(settings, options.agent or settings.default_agent, tool, began)
    raise typer.Exit(_show(result, record, as_json=as_json))


def _server(
    options: EndpointOptions, target: str, command: list[str], transport: Transports, timeout: float, *, up: bool
) -> tuple[Settings, RemoteServer | LocalServer]:
    from proxy.commands.mcp_session import LocalServer, RemoteServer  # noqa: PLC0415  as above

    if urlsplit(target).scheme in ("http", "https"):
        if command:
            raise ConfigError(f"{target!r} is a URL, so there is nothing to start; leave out -- and what follows it")
        found = find_running(options, up=up)
        return found.settings, RemoteServer(target, endpoint(options, found, node=False), transport, timeout)
    if not command:
        raise ConfigError(
            f"{target!r} is not a URL; for a local server write: interlock call {target} [TOOL] -- COMMAND ARGUMENTS"
        )
    settings = load_settings({"state_dir": options.state_dir}, config_file=options.config).settings
    flags = ["--server-name", target, "--state-dir", str(settings.state_dir)]
    flags += ["--agent", options.agent] if options.agent else []
    flags += ["--config", str(options.config)] if options.config else []
    return settings, LocalServer(["run", *flags, "--", *command])


def _record(settings: Settings, agent: str, tool: str, since: float) -> CallRecord | None:
    """Return the newest record of a call of that tool since then."""

    async def read() -> CallRecord | None:
        async with open_audit(settings.postgres, settings.state_dir, store_timeout=TRAIL_SECONDS) as audit:
            calls = await audit.calls(Filter(since=since, agent=agent, tool=tool), limit=1)
            return calls[0] if calls else None

    try:
        return asyncio.run(read())
    except InterlockError as error:
        print_note(f"the record of the call cannot be read: {error}")
        return None


def _show_tools(tools: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for tool in tools:
            typer.echo(format_json(tool))
        return
    rows = [(printable(tool["name"]), " ".join(_parameters(tool)), _first_line(tool)) for tool in tools]
    print_table(("tool", "arguments", "description"), rows, "The server has no tools, or policy hides them all.")


def _first_line(tool: dict[str, Any]) -> str:
    return printable((tool.get("description") or "").split("\n")[0])


def _parameters(tool: dict[str, Any]) -> list[str]:
    schema = tool.get("inputSchema") or {}
    required = schema.get("required") or []
    return [printable(name if name in required else f"[{name}]") for name in schema.get("properties") or {}]


def _show(result: dict[str, Any], record: CallRecord | None, *, as_json: bool) -> int:
    """Print what came of a call; return the exit code."""
    denial = (result.get("_meta") or {}).get(DENIAL_META)
    code = REFUSED if denial else FAILED if result.get("isError") else 0
    said: dict[str, Any] = {}
    if isinstance(denial, dict):
        said = {"decision": "deny", **{name: denial.get(name) for name in ("reason", "rule", "audit_id")}}
    elif record is not None:
        said = {"decision": record.decision, "reason": record.reason, "rule": record.rule, "audit_id": record.event_id}
    if as_json:
        typer.echo(format_json({**said, "call_id": record.call_id if record else None, "result": result}))
        return code
    for block in result.get("content") or []:
        text = printable_lines(block["text"]) if block.get("type") == "text" else format_json(block)
        # What a server says is left as it is. A refusal is our own words, and reads better where lines end with words.
        stdout_console().print(Text(text), soft_wrap=not denial)
    if not result.get("content") and result.get("structuredContent") is not None:
        typer.echo(format_json(result["structuredContent"]))
    audit_id = said.pop("audit_id", None)
    if said:
        print_note(", ".join(f"{name} {printable(value)}" for name, value in said.items() if value))
    if audit_id:
        print_note(f"more: interlock audit show {printable(audit_id)}")
    return code
