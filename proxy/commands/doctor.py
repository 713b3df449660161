"""`interlock doctor`: what does not work here, and how to fix it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from proxy.agent.env import change, through_proxy
from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir
from proxy.commands.proxy_address import EndpointOptions, FoundProxy, endpoint
from proxy.commands.terminal import format_json, print_table, printable
from proxy.config import Settings, load_settings
from proxy.doctor import audit, fleet, machine, mcp_call, network, policy, runtimes, sinks, state_folder, vault
from proxy.doctor.findings import LIMIT, Check, CheckResult, fail, run_checks, warn
from proxy.errors import ConfigError
from proxy.system import run_file
from proxy.vault.vault_file import VaultFile
from proxy.wire.refusal_messages import DENIAL_META

EPILOG = """
Examples:
  interlock doctor
  interlock doctor --quick
  interlock doctor --json | jq -r 'select(.state == "fail") | .mend'
"""
CALL_SECONDS = 10.0
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    state_dir: StateDir = None,
    database_url: DatabaseUrl = None,
    config: ConfigFile = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for all checks together.")] = LIMIT,
    quick: Annotated[bool, typer.Option("--quick", help="Only look: make no call and start no runtime.")] = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Check whether Interlock works here, and say how to fix what does not.

    It changes nothing. If a proxy runs, it makes one call through it to a server of its own, which is
    recorded, and a request with each runtime that it finds (curl, git, npm, Python, Node, Go, Java,
    Ruby, PHP), in the environment of `interlock exec`: does it go through the proxy, or around it?

    Exit code: 0 if no check fails (there may be warnings), 1 if one fails.
    """
    flags = {"state_dir": state_dir, "database_url": database_url}
    try:
        settings = load_settings(flags, config_file=config).settings
    except ConfigError as error:
        # Without settings there is no state folder to check, but the machine can still be.
        known = [fail("settings", str(error), "`interlock config show` shows each setting and where it comes from")]
        found = [*known, *run_checks(_machine_checks(os.environ), timeout)]
    else:
        checks = [*_machine_checks(os.environ), *_proxy_checks(settings, os.environ)]
        checks += [] if quick else _tries(settings, config, timeout)
        found = list(run_checks(checks, timeout))
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
        ("transparency log", lambda: audit.transparency(settings)),
        ("database", lambda: audit.database(settings)),
        ("sinks", lambda: sinks.reached(settings)),
        *([("vault", lambda: vault.sources(state_dir))] if VaultFile(state_dir).path.exists() else []),
        *([("fleet", lambda: fleet.replicas(settings, environ))] if settings.postgres else []),
    ]


def _tries(settings: Settings, config: Path | None, timeout: float) -> list[tuple[str, Check]]:
    """Return the checks that need a running proxy and make traffic; none where they cannot be made."""
    running = run_file.read(settings.state_dir)
    if running is None:
        return []
    if running.mode != "regular" or settings.agent_auth == "required":
        why = f"mode is {running.mode}" if running.mode != "regular" else "callers need an agent's token"
        mend = "try yours by hand: `interlock exec --agent NAME` with its token, or `interlock call`"
        return [("runtimes", lambda: [warn("runtimes", f"not tried: {why}", mend)])]
    options = EndpointOptions(state_dir=settings.state_dir, config=config)
    reached = endpoint(options, FoundProxy(settings, running.listen, None, None))

    def call(url: str, tool: str, arguments: dict[str, Any]) -> bool:
        from proxy.commands.mcp_session import RemoteServer, call_unlisted, run_session  # noqa: PLC0415  half a second

        server = RemoteServer(url, reached, "http", CALL_SECONDS)
        result = run_session(call_unlisted(server, tool, arguments, CALL_SECONDS), url)
        return DENIAL_META in (result.get("_meta") or {})

    environ = change(os.environ, through_proxy(reached))
    return [
        ("mcp call", lambda: mcp_call.way_through(settings, settings.default_agent, call)),
        ("runtimes", lambda: runtimes.try_runtimes(environ, in_all=0.8 * timeout)),
    ]


def _print(found: Iterable[CheckResult]) -> None:
    rows = []
    for one in found:
        what = Text(printable(one.said))
        if one.mend:
            what.append(f"\n→ {printable(one.mend)}", "italic")
        rows.append((one.check, Text(one.state, _COLOURS[one.state]), what))
    print_table(("check", "state", "what it found"), rows)
