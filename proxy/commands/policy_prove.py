"""What `interlock policy diff` says beside the differences: recorded calls decided by both, and what is let through."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from proxy.commands.replay import recorded_events, show_replay
from proxy.commands.terminal import format_json, print_json_lines, printable_lines
from proxy.core.event import Filter
from proxy.policy.load import compile_sources
from proxy.policy.replay import replay as decide_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.config import Settings
    from proxy.policy.load import PolicySource
    from proxy.policy_learning.widening import Verdict


def say_verdict(verdict: Verdict, *, as_json: bool) -> None:
    call = verdict.witness
    names = ("method", "server", "agent", "tool", "arguments")
    witness = {name: getattr(call, name) for name in names} if call is not None else None
    if as_json:
        found = {name: getattr(verdict, name) for name in ("was", "now", "why")}
        print_json_lines([{"kind": "proof", "lets_more_through": verdict.answer, "witness": witness, **found}])
        return
    match verdict.answer:
        case "no":
            typer.echo(
                f"Proven: the second lets nothing through that the first stops ({verdict.kinds} kinds of calls)."
            )
        case "yes":
            typer.echo(f"The second lets this call through: was {verdict.was}, would be {verdict.now}")
            typer.echo(printable_lines(format_json(witness)))
        case _:
            typer.echo("Unknown whether the second lets through what the first stops:")
            for why in verdict.why:
                typer.echo(f"  {printable_lines(why)}")


def say_replay(sources: Sequence[PolicySource], settings: Settings, since: float, *, as_json: bool) -> None:
    """Decide recorded calls again by the second policy, and say what would change."""
    outcome = decide_again(compile_sources(sources), recorded_events(settings, Filter(since=since)))
    if as_json:
        print_json_lines({"kind": "change", **asdict(change)} for change in outcome.changes)
        print_json_lines([{"kind": "summary", **outcome.data()}])
    else:
        show_replay(outcome)
