"""Puts together what binds a sandboxed server's files to its calls, and what tells of violations in its trace."""

from __future__ import annotations

import asyncio
import os
from functools import cached_property
from typing import TYPE_CHECKING

from proxy.sandbox.boundaries import boundaries
from proxy.sandbox.profile import binds_hosts
from proxy.sandbox.violation_rules import SandboxRules
from proxy.sandbox.violations import violation
from proxy.stdio.bound_files import BoundFiles
from proxy.stdio.bound_hosts import BoundHosts, RefusedHosts
from proxy.stdio.violation_keeper import ViolationKeeper
from proxy.trace.observed_violations import with_violations

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import Context, InFlightCall, JsonObject
    from proxy.gate.gate import Gate
    from proxy.runtime.sandboxed_run import SandboxedRun
    from proxy.sandbox.violations import Boundaries
    from proxy.stdio.runner import StdioRunner
    from proxy.trace.capability import Observation
    from proxy.trace.live_trace import Report
    from proxy.trace.tracer import TracePipe


def keep_violations(
    box: SandboxedRun, gate: Gate, context: Context, runner: Callable[[], StdioRunner]
) -> ViolationKeeper:
    """Return what records the acts that a server's sandbox refuses; refused connections are told to it."""
    profile, calls = box.chosen.profile, gate.in_flight.under_way

    def end() -> None:
        runner().kill_server()

    keeper = ViolationKeeper(gate, context, profile, end, asyncio.get_running_loop())
    box.on_refused = RefusedHosts(keeper.take, calls, box.lists)
    # Libraries ask for services on unix sockets, and do without: that bars no answer.
    box.tell_refused_calls(lambda found: keeper.take(found, calls(), only_told=found.action == "socket"))
    return keeper


def bind_hosts(box: SandboxedRun) -> BoundHosts | None:
    """Bind the hosts of a server to its calls, where some tools are bound. Call it before the server starts."""
    profile = box.chosen.profile
    if not binds_hosts(profile):
        return None
    bound = BoundHosts(profile)
    box.bound_hosts = bound.allows
    return bound


def bind_files(box: SandboxedRun, keeper: ViolationKeeper, trace: TracePipe | None) -> BoundFiles:
    """Begin to supervise the server of a sandbox, some of whose tools are bound. Call it before the server starts."""
    assert box.supervised is not None
    assert box.around is not None
    profile, around = box.chosen.profile, box.around
    granted = boundaries(profile, around, os.environ, box.grants)
    folders = tuple(dict.fromkeys((around.cwd, *around.roots)))
    writer = trace.writer if trace is not None else None
    return BoundFiles(box.supervised, profile, granted, folders, around.home, keeper.take, writer)


class ViolationReport:
    """Reports what was observed, and what of it the server's profile does not grant."""

    def __init__(self, box: SandboxedRun, report: Report) -> None:
        self._box = box
        self._report = report

    @cached_property
    def _granted(self) -> Boundaries:
        # Not before something was observed: the server's client waits for its start.
        assert self._box.around is not None
        return boundaries(self._box.chosen.profile, self._box.around, os.environ, self._box.grants, bound=False)

    def rules(self) -> SandboxRules | None:
        """Return the profile as rules on acts; None where it only tells of violations, which the report does."""
        profile = self._box.chosen.profile
        if not profile.enforced or profile.violation == "tell":
            return None
        return SandboxRules(profile, self._granted)

    def __call__(self, in_flight: InFlightCall | None, record: JsonObject) -> None:
        enforced = self._box.chosen.profile.enforced
        self._report(in_flight, with_violations(record, self._granted, enforced=enforced))

    def is_hidden(self, seen: Observation) -> bool:
        """Return whether a file that the server did not find is only out of its sight."""
        return self._box.confines and violation(seen, self._granted, enforced=True) is not None
