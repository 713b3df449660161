"""`interlock status`: whether a proxy runs, and which policy is in force."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from proxy.audit.backlog import Backlog, SinkBacklog, read_backlog
from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.terminal import count, print_json_lines, print_pairs, printable, printable_lines, stdout_console
from proxy.commands.time_format import format_time
from proxy.confine.kernel_settings import with_settings
from proxy.errors import ConfigError
from proxy.fleet.membership import MembershipFile
from proxy.sandbox.kernel_support import find_support
from proxy.system import run_file
from proxy.vault.vault_file import VaultFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from proxy.fleet.membership import Membership
    from proxy.system.run_file import RunningProxy

EPILOG = "Example:  interlock status --json"


def status(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show whether the proxy runs, where it listens and which policy is in force.

    It also shows the workers, the health address, how many audit events wait for the store, and what
    a sandbox of `interlock run` can hold on this system.

    Exit code: 0 if it runs with the policy on disk, 1 if it does not run or uses an older policy
    because the one on disk is invalid.
    """
    folder = state_folder(state_dir, config)
    running, audit = run_file.read(folder), read_backlog(folder, time.time())
    member = MembershipFile(folder).read()
    vault, vault_problem = _credentials(folder)
    if as_json:
        report = {"running": running is not None, **(asdict(running) if running else {}), "audit": asdict(audit)}
        report["sandboxes"] = asdict(find_support())
        report["vault"] = {"credentials": vault, "problem": vault_problem}
        report["fleet"] = {"fleet_id": member.fleet_id, "replica_id": member.replica_id} if member else None
        print_json_lines([report])
    else:
        _show(running, audit, member, printable(folder))
        _show_vault(vault, vault_problem)
    # A script that deploys a policy must see that it did not take effect.
    raise typer.Exit(0 if running is not None and running.policy_problem is None else 1)


def _credentials(folder: Path) -> tuple[int | None, str | None]:
    """Return how many credentials there are by reference; None and why, where that cannot be read."""
    try:
        return len(VaultFile(folder).read().credentials), None
    except ConfigError as error:
        return None, str(error)


def _show_vault(credentials: int | None, problem: str | None) -> None:
    if credentials:
        print_pairs([("vault", f"{count(credentials, 'credential')}; `interlock vault list` shows them")])
    if problem is not None:
        stdout_console().print(
            Text.assemble(("VAULT PROBLEM", "bold red"), f": {printable_lines(problem)}"), soft_wrap=True
        )


def _sandboxes() -> str:
    support = find_support()
    return str(support) if support.namespaces else with_settings(str(support))


def _show(running: RunningProxy | None, audit: Backlog, member: Membership | None, folder: str) -> None:
    if running is None:
        typer.echo(f"No proxy runs on {folder}. Start one with `interlock up`, or give --state-dir.")
    else:
        typer.echo(f"interlock runs (process {running.pid}, since {format_time(running.started)} UTC).")
    facts = _facts(running) if running is not None else []
    facts += [("audit", _backlog(audit)), *((f"sink {one.name}", _sink(one)) for one in audit.sinks)]
    facts.append(("sandboxes", _sandboxes()))
    facts += [("fleet", f"{member.fleet_id}, as replica {member.replica_id}")] if member is not None else []
    print_pairs((name, printable(value)) for name, value in facts)
    console = stdout_console()
    for title, problem in _problems(running, audit):
        console.print(Text.assemble((title, "bold red"), f": {printable_lines(problem)}"), soft_wrap=True)


def _facts(running: RunningProxy) -> list[tuple[str, str]]:
    return [
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
    ]


def _backlog(audit: Backlog) -> str:
    waiting = f"{count(audit.events, 'event')} {'waits' if audit.events == 1 else 'wait'} for the store"
    return waiting + (f", the oldest for {audit.lag_seconds:.0f} s" if audit.lag_seconds is not None else "")


def _sink(sink: SinkBacklog) -> str:
    waiting = f"{count(sink.events, 'event')} {'waits' if sink.events == 1 else 'wait'}"
    oldest = f", the oldest for {sink.lag_seconds:.0f} s" if sink.lag_seconds is not None else ""
    return waiting + oldest + (", required" if sink.required else "")


def _workers(running: RunningProxy) -> str:
    serving = sum(worker.serves for worker in running.workers)
    each = ", ".join(
        f"{worker.number}: {f'process {worker.pid}' if worker.pid else 'being replaced'}"
        + (f", replaced {count(worker.restarts, 'time')}" if worker.restarts else "")
        for worker in running.workers
    )
    return f"{serving} of {len(running.workers)} {'serves' if serving == 1 else 'serve'} ({each})"


def _problems(running: RunningProxy | None, audit: Backlog) -> Iterator[tuple[str, str]]:
    if running is not None and running.policy_problem is not None:
        what = "a newer policy cannot be used here" if running.policy == "pushed" else "the policy on disk is invalid"
        yield "POLICY PROBLEM", f"{what}; the version above stays in force."
        yield "because", running.policy_problem
    if running is not None and running.fleet_problem is not None:
        yield "FLEET PROBLEM", running.fleet_problem
    if audit.rejected:
        refused = f"the store refused {count(audit.rejected, 'event')}"
        yield "REJECTED", f"{refused}, which {'was' if audit.rejected == 1 else 'were'} set aside."
    for problem in audit.problems:
        yield "AUDIT PROBLEM", problem
    if audit.transparency_problem is not None:
        yield "TRANSPARENCY LOG", audit.transparency_problem
    for sink in audit.sinks:
        if sink.problem is not None:
            yield "SINK PROBLEM", f"{sink.name}: {sink.problem}"
        for gap in sink.gaps:
            between = f"{gap.first_id} to {gap.last_id}" if gap.count > 1 else f"{gap.first_id}"
            yield "SINK GAP", f"{sink.name} did not get {count(gap.count, 'event')} ({between}): {gap.reason}."
