"""What `interlock policy diff` says beside the differences: recorded calls decided by both, and what is let through."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from proxy.commands.replay import recorded_events, show_replay
from proxy.commands.terminal import format_json, print_json_lines, printable_lines
from proxy.core.event import Filter
from proxy.policy.load import compile_sources
from proxy.policy.replay import replay as decide_again
from proxy.policy_learning.widening import Verdict, find_widening

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.config import Settings
    from proxy.policy.load import PolicySource

# What both policies have alike stops the same calls in both; where these differ, rules alone prove nothing.
_BESIDE_RULES = ("limits", "flows", "labels", "incoming", "home", "detectors", "suppressions", "pins")


def prove(
    first: Sequence[PolicySource], second: Sequence[PolicySource], values: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Verdict:
    """Return whether the second policy lets through a call that the first stops."""
    verdict = find_widening(compile_sources(first), compile_sources(second))
    if verdict.answer != "yes":
        for name in _BESIDE_RULES:
            if values[0].get(name) != values[1].get(name):
                verdict.why.append(f"{name} differ, and only rules are compared")
        if _masking(values[0]) != _masking(values[1]):
            verdict.why.append("redact rules that deny differ, and detectors are not compared")
        verdict.answer = "unknown" if verdict.why else "no"
    return verdict


def _masking(values: Mapping[str, Any]) -> list[Any]:
    return [rule for rule in values.get("rules") or () if rule.get("redact") == "deny"]


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
