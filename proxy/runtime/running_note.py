"""What the run file says of a proxy, and what a change of its policy says in the log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import structlog

from proxy.policy.reloader import describe_refusal
from proxy.system import run_file
from proxy.system.listen_ports import format_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.config import Settings
    from proxy.runtime.proxy_sockets import ProxySockets
    from proxy.runtime.worker_process import WorkerSlot

log = structlog.get_logger("interlock.supervisor")

PUSHED: Final = "pushed"  # in place of a path


class RunningNote:
    """Describes one proxy as it is when it is asked."""

    def __init__(self, settings: Settings, sockets: ProxySockets, slots: Sequence[WorkerSlot], ca: str) -> None:
        self._settings = settings
        self._sockets = sockets
        self._slots = slots
        self._ca = ca

    def take(self, started: float, policy_before: str, console: str | None) -> run_file.RunningProxy:
        """Return the proxy as it is. `policy_before` is what all workers had when they were last asked."""
        settings, sockets = self._settings, self._sockets
        reports = [slot.worker.report for slot in self._slots if slot.worker and slot.worker.report]
        versions = {report.policy_version for report in reports}
        return run_file.RunningProxy(
            pid=os.getpid(),
            listen=format_address(sockets.listening.addresses[0]),
            mode=settings.mode,
            ca=self._ca,
            policy=str(settings.policy) if settings.policy_source == "file" else PUSHED,
            profile=settings.profile,
            # While workers reload one after the other, the policy before is the one that all of them had.
            policy_version=versions.pop() if len(versions) == 1 else policy_before,
            started=started,
            policy_problem=next((report.policy_problem for report in reports if report.policy_problem), None),
            fleet_problem=next((report.fleet_problem for report in reports if report.fleet_problem), None),
            operator_socket=str(sockets.operators.path),
            operator_listen=next(map(format_address, sockets.operators.addresses), None),
            health=format_address(sockets.health_address) if sockets.health_address is not None else None,
            console=console,
            workers=tuple(slot.note() for slot in self._slots),
        )


def log_policy(before: run_file.RunningProxy, now: run_file.RunningProxy) -> None:
    """Log what became of a reload. Every worker reloads; one line says it."""
    if now.policy_problem is not None and now.policy_problem != before.policy_problem:
        log.error(describe_refusal(now.policy_problem))
    elif (now.policy_version, now.policy_problem) != (before.policy_version, before.policy_problem):
        log.info("policy in force", path=now.policy, version=now.policy_version)
