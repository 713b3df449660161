"""`interlock status`: whether a proxy runs, and which policy is in force."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from proxy.audit.backlog import Backlog, read_backlog
from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.time_format import format_time
from proxy.system import run_file

if TYPE_CHECKING:
    from proxy.system.run_file import RunningProxy

EPILOG = "Example:  interlock status --json"


def status(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show whether the proxy runs, where it listens and which policy is in force.

    It also shows the workers, the health address, and how many audit events wait for the store.

    Exit code: 0 if it runs with the policy on disk, 1 if it does not run or uses an older policy
    because the one on disk is invalid.
    """
    folder = state_folder(state_dir, config)
    running, audit = run_file.read(folder), read_backlog(folder, time.time())
    if as_json:
        report = {"running": running is not None, **(asdict(running) if running else {}), "audit": asdict(audit)}
        typer.echo(json.dumps(report))
    elif running is None:
        Console(soft_wrap=True, highlight=False).print(
            f"No proxy runs on {escape(str(folder))}. Start one with `interlock up`, or give --state-dir."
        )
    else:
        _show(running)
    if not as_json:
        _show_audit(audit)
    # A script that deploys a policy must see that it did not take effect.
    raise typer.Exit(0 if running is not None and running.policy_problem is None else 1)


def _show_audit(audit: Backlog) -> None:
    console = Console(soft_wrap=True, highlight=False)
    waiting = f"{audit.events} events wait for the store"
    lag = f", the oldest for {audit.lag_seconds:.0f} s" if audit.lag_seconds is not None else ""
    console.print(f"{'audit':<12} {waiting}{lag}")
    if audit.rejected:
        console.print(f"[bold red]REJECTED[/]: the store refused {audit.rejected} events, which were set aside.")
    for problem in audit.problems:
        console.print(f"[bold red]AUDIT PROBLEM[/]: [red]{escape(problem)}[/]")


def _workers(running: RunningProxy) -> str:
    serving = sum(worker.serves for worker in running.workers)
    each = ", ".join(
        f"{worker.number}: {f'process {worker.pid}' if worker.pid else 'being replaced'}"
        + (f", replaced {worker.restarts} times" if worker.restarts else "")
        for worker in running.workers
    )
    return f"{serving} of {len(running.workers)} serve ({each})"


def _show(running: RunningProxy) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"interlock runs (process {running.pid}, since {format_time(running.started)[:19]} UTC).")
    for name, value in (
        ("listens on", running.listen),
        ("mode", running.mode),
        ("policy", running.policy),
        ("profile", running.profile or "none"),
        ("version", running.policy_version),
        ("certificate", running.ca),
        ("operators", " ".join(filter(None, (running.operator_socket, running.operator_listen)))),
        ("health", f"http://{running.health}/readyz" if running.health else "off"),
        ("console", running.console or "off"),
        ("workers", _workers(running)),
    ):
        console.print(f"{name:<12} {escape(value)}")
    if running.policy_problem is not None:
        console.print("\n[bold red]POLICY PROBLEM[/]: the policy on disk is invalid; the version above stays in force.")
        console.print(f"[red]{escape(running.policy_problem)}[/]")
