"""`interlock run`: runs one stdio MCP server behind the gate."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import ConfigFile, StateDir
from proxy.config import Settings, load_settings
from proxy.core.ids import new_id
from proxy.core.model import Context, Principal
from proxy.errors import ConfigError, StartError, TracingError
from proxy.sandbox.process_reaper import kill_descendants, set_subreaper
from proxy.sandbox.server_process import Launch, plan_launch
from proxy.system import log_setup, run_file
from proxy.trace.server_name import server_name as name_server
from proxy.trace.tamper_guard import forbid_inspection
from proxy.trace.tracer import TracePipe, find_strace, under_strace

EPILOG = """
Examples:
  interlock run -- npx -y @modelcontextprotocol/server-everything
  interlock run --server-name files --agent build-bot -- uvx mcp-server-git --repository .
"""
MAX_NAME = 200


def run(
    command: Annotated[list[str], typer.Argument(help="The server's command and its arguments, after --.")],
    server_name: Annotated[
        str | None,
        typer.Option(help="The server's name in policies, pins and the audit log; default: its package or program."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="The agent's name in policies and the audit log; default: default_agent.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help=Settings.model_fields["policy"].description)] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="off|auto|require", help=Settings.model_fields["trace"].description)
    ] = None,
    state_dir: StateDir = None,
    log_level: Annotated[str | None, typer.Option(help="Lowest level to log on stderr; default: warning.")] = None,
    config: ConfigFile = None,
) -> None:
    """Run a stdio MCP server behind the proxy.

    Use it in place of the server's own command. Every MCP message on stdin and stdout is decided,
    recorded and masked as over HTTP. stderr, signals and the exit code are the server's. When this
    command ends, the server ends, and the other way round.

    Exit code: the server's, or 128 plus the signal that ended it; 127 if there is no such program,
    126 if it cannot be executed, 1 for an error of Interlock.
    """
    flags = {"policy": policy, "trace": trace, "state_dir": state_dir, "log_level": log_level, "default_agent": agent}
    loaded = load_settings(flags, config_file=config)
    settings = loaded.settings
    # MCP clients show every line on stderr as an error: only warnings by default.
    level = "warning" if loaded.sources["log_level"] == "default" else settings.log_level
    log_setup.configure(level, settings.log_format)
    # Fail closed: who requires tokens must not get unauthenticated calls through the side door of stdio.
    if settings.agent_auth == "required":
        raise ConfigError(
            "setting agent_auth = 'required': over stdio no caller can prove who it is; "
            "if you trust its client, set INTERLOCK_AGENT_AUTH=optional for this command"
        )
    name = server_name or name_server(command)
    if not name.isprintable() or len(name) > MAX_NAME:
        raise ConfigError(f"the server's name {name[:40]!r} is not allowed; give another with --server-name")
    try:
        launch = plan_launch(command, os.environ)
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(error.code) from None
    strace = _strace(settings.trace, name)
    context = Context(Principal(settings.default_agent), name, transport="stdio", session=new_id())
    # Before the server starts: its orphaned processes come to us and end with us, and it cannot read our memory,
    # where the keys are, through /proc or ptrace.
    set_subreaper()
    forbid_inspection()
    raise typer.Exit(asyncio.run(_serve(settings, context, launch, strace)))


def _strace(trace: str, name: str) -> str | None:
    """Return strace's path; None if the server runs untraced."""
    if trace == "off":
        return None
    try:
        return find_strace(os.environ)
    except TracingError as error:
        if trace == "require":
            sys.stderr.write(f"interlock run: cannot trace {name!r}, so it is not run: {error}\n")
            raise typer.Exit(1) from None
        sys.stderr.write(f"interlock run: {name!r} runs untraced: {error}; use --trace off to hide this message\n")
        return None


async def _serve(settings: Settings, context: Context, launch: Launch, strace: str | None) -> int:
    from proxy.audit.local_log_files import RunLog  # noqa: PLC0415
    from proxy.runtime.wiring import Components  # noqa: PLC0415  slow to import, not needed for --help
    from proxy.stdio.pipes import DescriptorReader, DescriptorWriter, take_standard_streams  # noqa: PLC0415
    from proxy.stdio.runner import StdioRunner  # noqa: PLC0415
    from proxy.trace.live_trace import LiveTrace  # noqa: PLC0415

    open_log = partial(RunLog, settings.state_dir, max_bytes=settings.audit_log_limit)
    components = Components(
        settings,
        open_log,
        lambda _: runner.tools_changed(),
        server=context.server,
        console=run_file.console_url(settings.state_dir),
    )
    channel = watch = None
    if strace is not None:
        channel = TracePipe()
        launch = under_strace(launch, strace, channel.path)
        watch = LiveTrace(
            channel, partial(components.gate.recorder.observed, context), own=(settings.state_dir, settings.policy)
        )
    # After everything that may print: from here on stdout carries MCP only.
    incoming, outgoing = take_standard_streams()
    runner = StdioRunner(
        components.gate,
        context,
        DescriptorReader(incoming),
        DescriptorWriter(outgoing),
        line_limit=settings.body_limit,
        answer_limit=settings.response_limit,
        stop_seconds=settings.drain_timeout,
        watch=watch,
    )
    watching = asyncio.create_task(components.watch())
    try:
        await components.check()
        return await runner.run(launch)
    finally:
        # If the server killed its reaper, its children became ours: end them before their pipes close.
        kill_descendants(os.getpid())
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if channel is not None:
            channel.hide()
        await components.close()
