"""Runs one stdio MCP server behind the gate: what `interlock run` does."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from proxy.system import log_setup, run_file  # before all others: it imports structlog without rich

# isort: split
from proxy.audit.restored import open_run_log
from proxy.config import Settings, load_settings
from proxy.core.ids import new_id
from proxy.core.model import Context, Principal
from proxy.errors import ConfigError, StartError, TracingError
from proxy.policy.home import own_home
from proxy.runtime.wiring import Components, preload
from proxy.sandbox.process_reaper import kill_descendants, set_subreaper
from proxy.sandbox.server_process import Launch, plan_launch
from proxy.stdio.pipes import DescriptorReader, DescriptorWriter, take_standard_streams
from proxy.stdio.runner import StdioRunner
from proxy.trace.live_trace import LiveTrace
from proxy.trace.server_name import server_name as name_server
from proxy.trace.tamper_guard import forbid_inspection
from proxy.trace.tracer import TracePipe, find_strace, under_strace

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.commands.run_flags import RunFlags

MAX_NAME = 200
type Say = Callable[[str], None]


class _CannotTraceError(Exception):
    """The server must be traced and cannot be; the reason was printed."""


def run_server(given: RunFlags) -> int:
    """Run a server until it or its client ends; return the exit code. Raises InterlockError where it cannot be run."""
    flags = {name: getattr(given, name) for name in ("policy", "trace", "state_dir", "log_level")}
    loaded = load_settings({**flags, "default_agent": given.agent}, config_file=given.config)
    settings = loaded.settings
    # MCP clients show every line on stderr as an error: only warnings by default.
    level = "warning" if loaded.sources["log_level"] == "default" else settings.log_level
    log_setup.configure(level, "json" if given.as_json else settings.log_format)
    say = _say_json if given.as_json else _say
    # Fail closed: who requires tokens must not get unauthenticated calls through the side door of stdio.
    if settings.agent_auth == "required":
        raise ConfigError(
            "setting agent_auth = 'required': over stdio no caller can prove who it is; "
            "if you trust its client, set INTERLOCK_AGENT_AUTH=optional for this command"
        )
    name = given.server_name or name_server(given.command)
    if not name.isprintable() or len(name) > MAX_NAME:
        raise ConfigError(f"the server's name {name[:40]!r} is not allowed; give another with --server-name")
    try:
        launch = plan_launch(given.command, os.environ)
    except StartError as error:
        say(str(error))
        return error.code
    try:
        strace = _strace(settings.trace, name, say)
    except _CannotTraceError:
        return 1
    context = Context(Principal(settings.default_agent), name, transport="stdio", session=new_id())
    # Before the server starts: its orphaned processes come to us and end with us, and it cannot read our memory,
    # where the keys are, through /proc or ptrace.
    set_subreaper()
    forbid_inspection()
    return asyncio.run(_serve(settings, context, launch, strace, say))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _say_json(text: str) -> None:
    from proxy.commands.terminal import print_error  # noqa: PLC0415  slow to import, and hardly ever needed

    print_error(text.removeprefix("interlock run: "), as_json=True)


def _strace(trace: str, name: str, say: Say) -> str | None:
    """Return strace's path; None if the server runs untraced."""
    if trace == "off":
        return None
    try:
        return find_strace(os.environ)
    except TracingError as error:
        if trace == "require":
            say(f"interlock run: cannot trace {name!r}, so it is not run: {error}")
            raise _CannotTraceError from error
        say(f"interlock run: {name!r} runs untraced: {error}; use --trace off to hide this message")
        return None


async def _serve(settings: Settings, context: Context, launch: Launch, strace: str | None, say: Say) -> int:
    open_log = partial(open_run_log, settings)
    preloaded = preload(settings, own_home(launch.argv, os.environ))
    components = Components(
        settings,
        open_log,
        lambda _: runner.tools_changed(),
        server=context.server,
        preloaded=preloaded,
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
        say=say,
    )
    components.halt_watcher.on_cut = runner.cut
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
