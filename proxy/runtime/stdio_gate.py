"""Puts the gate between a client and the stdio server that was started: the larger part of `interlock run`.

Apart from `stdio_run`, which starts the server: what is imported here takes longer than many servers need to start.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from proxy.audit.local_log_files import RunLog
from proxy.gate.behaviour import Behaviour
from proxy.policy.home import own_home
from proxy.runtime.wiring import Components, preload
from proxy.stdio.pipes import DescriptorReader, DescriptorWriter, take_standard_streams
from proxy.stdio.runner import StdioRunner
from proxy.system import run_file
from proxy.trace.live_trace import LiveTrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.config import Settings
    from proxy.core.model import Context
    from proxy.sandbox.server_process import Launch, ServerProcess
    from proxy.trace.tracer import TracePipe

UNTRACED = "policy has rules on what it is observed to do; trace it, or take these rules out"


async def serve(
    settings: Settings,
    context: Context,
    launch: Launch,
    server: ServerProcess,
    channel: TracePipe | None,
    say: Callable[[str], None],
) -> int:
    """Serve until the server or its client ends; return the exit code. `launch` is the server's own command."""
    preloaded = preload(settings, own_home(launch.argv, os.environ))
    if channel is None and preloaded.policy.current().observed.holds_answers(context.server):
        say(f"interlock run: {context.server!r} is not traced, and {UNTRACED}")
        return 1
    components = Components(
        settings,
        partial(RunLog, settings.state_dir, max_bytes=settings.audit_log_limit),
        lambda _: runner.tools_changed(),
        server=context.server,
        preloaded=preloaded,
        console=run_file.console_url(settings.state_dir),
    )
    runner = _runner(settings, context, components, channel, say)
    components.halt_watcher.on_cut = runner.cut
    watching = asyncio.create_task(components.watch())
    try:
        await components.check()
        return await runner.run(server)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await server.clean_up()
        await components.close()


def _runner(
    settings: Settings,
    context: Context,
    components: Components,
    channel: TracePipe | None,
    say: Callable[[str], None],
) -> StdioRunner:
    report = partial(components.gate.recorder.observed, context)
    watch = LiveTrace(channel, report, own=(settings.state_dir, settings.policy)) if channel is not None else None
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
    runner.behaviour = Behaviour(
        components.gate, context, lambda: components.policy.current().observed, runner.end_server
    )
    return runner
