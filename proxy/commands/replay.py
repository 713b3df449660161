"""`interlock policy replay`: decides recorded calls again with a candidate policy."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from proxy.audit.reader import open_audit
from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, trail_settings
from proxy.commands.terminal import LineTable, count, print_json_lines, printable, short_id
from proxy.commands.time_format import format_time, parse_age
from proxy.core.event import Filter
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
    outcome = decide_again(policy, recorded_events(settings, Filter(since=earliest)))
    if as_json:
        print_json_lines({"kind": "change", **asdict(change)} for change in outcome.changes)
        print_json_lines([{"kind": "summary", **outcome.data()}])
    else:
        show_replay(outcome)
    # Not 1: a script must tell a policy that changes decisions from one that does not load.
    raise typer.Exit(EXIT_CHANGES if outcome.changes else 0)


def recorded_events(settings: Settings, where: Filter) -> Iterator[dict[str, Any]]:
    """Yield the recorded events that match, oldest first. Raises StoreUnavailableError: a part proves nothing."""
    with asyncio.Runner() as runner:
        opened = open_audit(settings.postgres, settings.state_dir)
        audit = runner.run(opened.__aenter__())
        try:
            entries = audit.entries(where)
            while (entry := runner.run(anext(entries, None))) is not None:
                yield json.loads(entry.body)
        finally:
            runner.run(opened.__aexit__(None, None, None))


def show_replay(outcome: Replay) -> None:
    if outcome.changes:
        columns = ("time (UTC)", "was", "would be", "agent", "server", "tool or method", "call", "masked")
        table = LineTable(columns, whole=("time (UTC)", "call"))
        table.print([_row(change, table.console) for change in outcome.changes])
    decided = count(outcome.decided, "recorded call")
    typer.echo(f"{len(outcome.changes)} of {decided} would be decided differently.")
    if outcome.passed_over:
        typer.echo(f"Left out, since refused for other reasons than policy: {count(outcome.passed_over, 'call')}.")
    if outcome.masked:
        typer.echo(
            f"{count(outcome.masked, 'decision')} {'depends' if outcome.masked == 1 else 'depend'} on masked arguments "
            "(the log has no secrets): the real calls may be decided differently."
        )


def _row(change: ChangedDecision, console: Console) -> tuple[str, ...]:
    return (
        format_time(change.time),
        _verdict(change.was, change.was_reason, change.was_rule),
        _verdict(change.now, change.now_reason, change.now_rule),
        *map(printable, (change.agent, change.server, change.tool or change.method)),
        short_id(change.call_id, console),
        "yes" if change.masked else "",
    )


def _verdict(outcome: str, reason: str | None, rule: str | None) -> str:
    return printable(f"{outcome} ({rule or reason})")
