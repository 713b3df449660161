"""`interlock policy replay`: decides recorded calls again with a candidate policy."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.audit.event import Filter
from proxy.audit.reader import open_audit
from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, trail_settings
from proxy.commands.time_format import parse_age
from proxy.policy.load import load_policy
from proxy.policy.replay import ChangedDecision, Replay
from proxy.policy.replay import replay as decide_again
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.config import Settings

EXIT_CHANGES = 3
EPILOG = "Example:  interlock policy replay --since 7d new.yaml"


def replay(
    candidate: Annotated[Path, typer.Argument(help="Candidate policy file, or a folder of policy files.")],
    since: Annotated[str, typer.Option(help="How far back: 90s, 30m, 12h, 7d, 2w.")] = "7d",
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Decide recorded calls again with another policy, and show what would change.

    Secrets in recorded arguments are masked; the output marks decisions that depend on masked
    arguments. Calls refused for other reasons than policy are left out.

    Exit code: 0 if nothing would change, 3 if something would, 1 if the policy is invalid or
    there is no audit log.
    """
    earliest = time.time() - parse_age(since)
    policy = load_policy(candidate, builtin())
    settings = trail_settings(database_url, state_dir, config)
    outcome = decide_again(policy, recorded_events(settings, earliest))
    if as_json:
        for change in outcome.changes:
            typer.echo(json.dumps({"kind": "change", **asdict(change)}, ensure_ascii=False))
        typer.echo(json.dumps({"kind": "summary", **outcome.data()}))
    else:
        _show(outcome)
    # Not 1: a script must tell a policy that changes decisions from one that does not load.
    raise typer.Exit(EXIT_CHANGES if outcome.changes else 0)


def recorded_events(settings: Settings, since: float) -> Iterator[dict[str, Any]]:
    """Yield the recorded events from a time on, oldest first. Raises StoreUnavailableError: a part proves nothing."""
    with asyncio.Runner() as runner:
        opened = open_audit(settings.postgres, settings.state_dir)
        audit = runner.run(opened.__aenter__())
        try:
            entries = audit.entries(Filter(since=since))
            while (entry := runner.run(anext(entries, None))) is not None:
                yield json.loads(entry.body)
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _show(outcome: Replay) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if outcome.changes:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("time", "agent", "server", "tool or method", "was", "would be", "call", ""):
            table.add_column(name, overflow="fold")
        for change in outcome.changes:
            table.add_row(*map(escape, _row(change)))
        console.print(table)
    console.print(
        f"{len(outcome.changes)} of {outcome.decided} recorded calls would be decided differently; "
        f"{outcome.passed_over} were refused for other reasons than policy and left out."
    )
    if outcome.masked:
        console.print(
            f"{outcome.masked} decisions depend on masked arguments (the log has no secrets): "
            "the real calls may be decided differently."
        )


def _row(change: ChangedDecision) -> tuple[str, ...]:
    when = f"{dt.datetime.fromtimestamp(change.time, dt.UTC):%m-%d %H:%M:%S}" if change.time is not None else ""
    return (
        when,
        change.agent,
        change.server,
        change.tool or change.method,
        _verdict(change.was, change.was_reason, change.was_rule),
        _verdict(change.now, change.now_reason, change.now_rule),
        change.call_id or "",
        "masked arguments" if change.masked else "",
    )


def _verdict(outcome: str, reason: str | None, rule: str | None) -> str:
    return f"{outcome} ({rule or reason})"
