"""`interlock status`: is a proxy running, and which policy is in force."""

from __future__ import annotations

import datetime as dt
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from proxy.audit.backlog import read_backlog
from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.system import run_file

if TYPE_CHECKING:
    from proxy.audit.backlog import Backlog
    from proxy.system.run_file import Running

EPILOG = "Example:  interlock status --json"


def status(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Say whether a proxy runs here, where it listens and which policy is in force.

    It names the workers, and where health and metrics are, and says how many audit events wait to be moved to the
    store, since when, and what keeps them.

    Exit code 0: it runs, and the policy on disk is in force. Exit code 1: it does
    not run, or the policy on disk could not be loaded and an older one stays in force.
    """
    folder = state_folder(state_dir, config)
    running, audit = run_file.read(folder), read_backlog(folder, time.time())
    if as_json:
        told = {"running": running is not None, **(asdict(running) if running else {}), "audit": audit.data()}
        typer.echo(json.dumps(told))
    elif running is None:
        Console(soft_wrap=True, highlight=False).print(
            f"No proxy runs on {escape(str(folder))}: start one with `interlock up`, or give --state-dir."
        )
    else:
        _show(running)
    if not as_json:
        _show_audit(audit)
    raise typer.Exit(0 if running is not None and running.policy_problem is None else 1)


def _show_audit(audit: Backlog) -> None:
    console = Console(soft_wrap=True, highlight=False)
    waiting = f"{audit.events} events wait to be moved to the store"
    lag = f", the oldest for {audit.lag_seconds:.0f} s" if audit.lag_seconds is not None else ""
    console.print(f"{'audit':<12} {waiting}{lag}")
    if audit.rejected:
        console.print(f"[bold red]REJECTED[/]: {audit.rejected} events that the store does not take were set aside.")
    for problem in audit.problems:
        console.print(f"[bold red]AUDIT PROBLEM[/]: [red]{escape(problem)}[/]")


def _workers(running: Running) -> str:
    serving = sum(worker.serves for worker in running.workers)
    each = ", ".join(
        f"{worker.number}: {f'process {worker.pid}' if worker.pid else 'none now'}"
        + (f", replaced {worker.restarts} times" if worker.restarts else "")
        for worker in running.workers
    )
    return f"{serving} of {len(running.workers)} serve ({each})"


def _show(running: Running) -> None:
    console = Console(soft_wrap=True, highlight=False)
    since = dt.datetime.fromtimestamp(running.started, dt.UTC)
    console.print(f"interlock runs (process {running.pid}, since {since:%Y-%m-%d %H:%M:%S} UTC).")
    for name, value in (
        ("listens on", running.listen),
        ("mode", running.mode),
        ("policy", running.policy),
        ("version", running.policy_version),
        ("certificate", running.ca),
        ("operators", " ".join(filter(None, (running.operator_socket, running.operator_listen)))),
        ("health", f"http://{running.health}/readyz" if running.health else "off"),
        ("workers", _workers(running)),
    ):
        console.print(f"{name:<12} {escape(value)}")
    if running.policy_problem is not None:
        console.print("\n[bold red]POLICY PROBLEM[/]: the policy on disk is bad; the version above stays in force.")
        console.print(f"[red]{escape(running.policy_problem)}[/]")
