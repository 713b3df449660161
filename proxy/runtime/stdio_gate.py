"""Puts the gate between a client and a stdio server: the larger part of `interlock run`.

Apart from `stdio_run`, which starts the server: what is imported here takes longer than many servers need to start.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from proxy.audit.restored import open_run_log
from proxy.gate.behaviour import Behaviour
from proxy.runtime.preload import policy_cache
from proxy.runtime.wiring import Components
from proxy.sandbox.sandbox_exec import MARK
from proxy.sandbox.violation_rules import CombinedRules
from proxy.stdio.pipes import DescriptorReader, DescriptorWriter, take_standard_streams
from proxy.stdio.runner import StdioRunner
from proxy.system import run_file
from proxy.trace.live_trace import LiveTrace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.config import Settings
    from proxy.core.model import Context, JsonObject
    from proxy.gate.behaviour import ActRules
    from proxy.runtime.file_binding import ViolationReport
    from proxy.runtime.preload import Preloaded
    from proxy.runtime.sandboxed_run import SandboxedRun
    from proxy.sandbox.server_process import ServerProcess
    from proxy.stdio.bound_files import BoundFiles
    from proxy.trace.tracer import TracePipe

UNTRACED = "policy has rules on what it is observed to do; trace it, or take these rules out"


@dataclass(frozen=True, slots=True)
class StdioGate:
    """The gate before one server; `channel` where it is traced, `box` where it is sandboxed."""

    settings: Settings
    context: Context
    preloaded: Preloaded
    say: Callable[[str], None]
    channel: TracePipe | None = None
    box: SandboxedRun | None = None

    async def serve(self, start: Callable[[], Awaitable[ServerProcess]]) -> int:
        """Serve until the server or its client ends; return the exit code."""
        settings, context = self.settings, self.context
        if self.channel is None and self.preloaded.policy.current().observed.holds_answers(context.server):
            self.say(f"interlock run: {context.server!r} is not traced, and {UNTRACED}")
            return 1
        components = Components(
            settings,
            partial(open_run_log, settings),
            lambda _: runner.tools_changed(),
            server=context.server,
            preloaded=self.preloaded,
            console=run_file.console_url(settings.state_dir),
            reloaded=self._on_reload(),
        )
        runner, bound = self._runner(components)
        components.halt_watcher.on_cut = runner.cut
        watching = asyncio.create_task(components.watch())
        server = None
        try:
            await components.check()
            server = await start()
            return await runner.run(server)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            if server is not None:
                await server.clean_up()
            if bound is not None:
                bound.stop()
            await components.close()

    def _on_reload(self) -> Callable[[], None]:
        if self.box is None:
            return lambda: None
        from proxy.runtime.sandbox_update import SandboxUpdate  # noqa: PLC0415  most servers have no sandbox

        current, parsed = self.preloaded.policy.current, policy_cache(self.settings)
        return SandboxUpdate(self.box, self.context.server, self.box.command, current, parsed, self.say)

    def _runner(self, components: Components) -> tuple[StdioRunner, BoundFiles | None]:
        violations, bound, hosts = None, None, None
        if self.box is not None:
            from proxy.runtime import file_binding  # noqa: PLC0415  most servers have no sandbox

            violations = file_binding.ViolationReport(
                self.box, partial(components.gate.recorder.observed, self.context)
            )
            keeper = file_binding.keep_violations(self.box, components.gate, self.context, lambda: runner)
            hosts = file_binding.bind_hosts(self.box)
            if self.box.is_supervised:
                bound = file_binding.bind_files(self.box, keeper, self.channel)
            self._tell_untraced()
        watch = self._watch(components, violations)
        # After everything that may print: from here on stdout carries MCP only.
        incoming, outgoing = take_standard_streams()
        runner = StdioRunner(
            components.gate,
            self.context,
            DescriptorReader(incoming),
            DescriptorWriter(outgoing),
            line_limit=self.settings.body_limit,
            answer_limit=self.settings.response_limit,
            stop_seconds=self.settings.drain_timeout,
            bound=bound,
            bound_hosts=hosts,
            watch=watch,
            say=self.say,
            release=self._release if self.box is not None else None,
        )
        runner.behaviour = Behaviour(
            components.gate, self.context, self._act_rules(components, violations), runner.end_server
        )
        return runner, bound

    def _act_rules(self, components: Components, violations: ViolationReport | None) -> Callable[[], ActRules]:
        """Return the policy's rules on acts, with those of the profile where it withholds or ends the server."""
        sandbox = violations.rules() if violations is not None and self.channel is not None else None
        if sandbox is None:
            return lambda: components.policy.current().observed
        return lambda: CombinedRules(components.policy.current().observed, sandbox)

    def _tell_untraced(self) -> None:
        assert self.box is not None
        profile = self.box.chosen.profile
        if self.channel is None and profile.enforced and profile.violation != "tell":
            self.say(
                f"interlock run: {self.context.server!r} is not traced, so on_violation: {profile.violation} counts "
                "only for files that are bound to arguments; what else is refused is not seen"
            )

    def _watch(self, components: Components, violations: ViolationReport | None) -> LiveTrace | None:
        if self.channel is None:
            return None
        report = violations or partial(components.gate.recorder.observed, self.context)
        confined = self.box is not None and self.box.confines
        own = (self.settings.state_dir, self.settings.policy)
        watch = LiveTrace(self.channel, report, own=own, mark=MARK if confined else None)
        if violations is not None:
            watch.keep_hidden(violations.is_hidden)
        return watch

    async def _release(self) -> JsonObject:
        """Let the sandboxed server begin; return what events say of its sandbox."""
        assert self.box is not None
        detail = await self.box.release()
        if self.box.report is not None and self.box.report.missing:
            from proxy.confine.kernel_settings import with_settings  # noqa: PLC0415  hardly ever needed

            missing = with_settings("; ".join(self.box.report.missing))
            self.say(f"interlock run: the sandbox of {self.context.server!r} is not complete: {missing}")
        if self.box.absent:
            self.say(
                f"interlock run: the sandbox of {self.context.server!r} cannot grant what does not exist: "
                f"{', '.join(self.box.absent)}; create it, or write FOLDER/** for a folder"
            )
        if self.box.withheld:
            self.say(
                f"interlock run: the sandbox of {self.context.server!r} does not open {', '.join(self.box.withheld)}: "
                "the command line leads there by a folder that the server writes; if it is meant, name it in a profile"
            )
        return detail
