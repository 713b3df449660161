"""`interlock doctor`: what does not work here, and how to fix it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir
from proxy.commands.terminal import format_json, printable
from proxy.config import Settings, load_settings
from proxy.doctor import audit, machine, network, policy, state_folder
from proxy.doctor.findings import LIMIT, Check, CheckResult, fail, run_checks
from proxy.errors import ConfigError
from proxy.system import run_file

EPILOG = """
Examples:
  interlock doctor
  interlock doctor --json | jq -r 'select(.state == "fail") | .mend'
"""
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    state_dir: StateDir = None,
    database_url: DatabaseUrl = None,
    config: ConfigFile = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for all checks together.")] = LIMIT,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Check whether Interlock works here, and say how to fix what does not.

    It changes nothing. Exit code: 0 if no check fails (there may be warnings), 1 if one fails.
    """
    flags = {"state_dir": state_dir, "database_url": database_url}
    try:
        settings = load_settings(flags, config_file=config).settings
    except ConfigError as error:
        # Without settings there is no state folder to check, but the machine can still be.
        known = [fail("settings", str(error), "`interlock config show` shows each setting and where it comes from")]
        found = [*known, *run_checks(_machine_checks(os.environ), timeout)]
    else:
        found = list(run_checks([*_machine_checks(os.environ), *_proxy_checks(settings, os.environ)], timeout))
    counted = Counter(one.state for one in found)
    if as_json:
        for one in found:
            typer.echo(format_json({"kind": "check", **one.data()}))
        typer.echo(format_json({"kind": "summary", **{state: counted[state] for state in ("ok", "warn", "fail")}}))
    else:
        _print(found)
    sys.stdout.flush()
    raise typer.Exit(1 if counted["fail"] else 0)


def _machine_checks(environ: Mapping[str, str]) -> list[tuple[str, Check]]:
    return [("python", machine.python), ("kernel", lambda: machine.kernel(environ))]


def _proxy_checks(settings: Settings, environ: Mapping[str, str]) -> list[tuple[str, Check]]:
    state_dir, running = settings.state_dir, run_file.read(settings.state_dir)
    return [
        ("strace", lambda: machine.strace(settings.trace, environ)),
        ("clock", lambda: machine.clock(state_folder.newest_file(state_dir))),
        ("state folder", lambda: state_folder.permissions(state_dir)),
        ("disk", lambda: state_folder.disk_space(state_dir, settings.audit_log_limit)),
        ("ca", lambda: state_folder.ca(state_dir)),
        ("policy", lambda: policy.rules_and_tests(settings.policy, settings.profile, settings.profile_files)),
        ("proxy", lambda: network.proxy(running, state_dir)),
        ("listen", lambda: network.addresses(settings, running)),
        ("environment", lambda: network.environment(settings, running, environ)),
        ("audit log", lambda: audit.backlog(settings)),
        ("checkpoints", lambda: audit.checkpoints(settings)),
        ("database", lambda: audit.database(settings)),
    ]


def _print(found: Iterable[CheckResult]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("check", "state", "what"):
        table.add_column(name, overflow="fold")
    for one in found:
        what = Text(printable(one.said))
        if one.mend:
            what.append(f"\n→ {printable(one.mend)}", "italic")
        table.add_row(one.check, Text(one.state, _COLOURS[one.state]), what)
    Console(markup=False, emoji=False, highlight=False).print(table)
