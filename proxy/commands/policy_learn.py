"""`interlock policy learn`: least-privilege rules from recorded calls."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.replay import recorded_events
from proxy.commands.terminal import count, print_json_lines
from proxy.commands.time_format import parse_age
from proxy.config import Settings
from proxy.core.event import Filter
from proxy.errors import PolicyError
from proxy.policy.load import load_sources
from proxy.policy_learning.policy_text import policy_text
from proxy.policy_learning.trail_learner import LearnedPolicy, Scope, learn_policy
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Iterable

LEARN_EPILOG = """
Examples:
  interlock policy learn --since 7d -o learned.yaml
  interlock policy learn --agent ci-bot --shadow -o ci-bot.yaml
  interlock policy learn --since 2w --except marked.txt --except 01a2b3c4 -o learned.yaml
"""


@takes(trail_settings)
def learn(
    settings: Settings,
    since: Annotated[str, typer.Option(help="How far back: 90s, 30m, 12h, 7d, 2w.")] = "7d",
    agent: Annotated[str | None, typer.Option(help="Only calls of this agent.")] = None,
    server: Annotated[str | None, typer.Option(help="Only calls of this server.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--except",
            metavar="ID|FILE",
            help="The audit id of a call that is not to be learned, or a file with one on each line; may be repeated.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The file to write; default: stdout.")] = None,
    *,
    shadow: Annotated[bool, typer.Option("--shadow", help="Write a policy that only records.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn a policy from recorded calls: what was allowed, and no more.

    Calls that were denied are not learned, nor those named by --except. Each rule has its evidence as comments, and
    tests from recorded calls and from near misses.

    Exit code: 0 if the policy allows every call that it was learned from, 3 if there are some that it cannot, 1 if
    there is nothing to learn from.
    """
    now = time.time()
    where = Filter(since=now - parse_age(since), until=now, agent=agent, server=server)
    scope = Scope(marked_ids(without or []))

    def read() -> Iterable[dict[str, Any]]:
        return recorded_events(settings, where)

    learned = learn_policy(read, scope)
    if not learned.rules and not learned.hosts:
        raise PolicyError(f"the trail has no allowed calls of the last {since} to learn from")
    told = ", ".join(filter(None, (f"the trail of {since}", agent and f"agent {agent}", server and f"server {server}")))
    text = policy_text(learned, told, shadow=shadow)
    if output is not None:
        write_policy(output, text)
    _say(learned, text, output, as_json=as_json)
    raise typer.Exit(3 if learned.uncovered else 0)


def marked_ids(given: list[str]) -> frozenset[str]:
    """Return audit ids that are given by themselves or in files. Raises PolicyError."""
    found: set[str] = set()
    for one in given:
        if Path(one).is_file():
            try:
                lines = Path(one).read_text().splitlines()
            except (OSError, UnicodeError) as error:
                raise PolicyError(f"{one} cannot be read: {error}") from None
            found |= {line.split("#")[0].strip() for line in lines}
        elif "/" in one or one.endswith(".txt"):
            # A list that is missing must not turn into "nothing was marked".
            raise PolicyError(f"there is no file {one}")
        else:
            found.add(one)
    return frozenset(found - {""})


def write_policy(file: Path, text: str) -> None:
    """Write a policy that loads. Raises PolicyError."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PolicyError(f"{file} cannot be written: {error.strerror}") from None
    load_sources(file, builtin())


def _say(learned: LearnedPolicy, text: str, output: Path | None, *, as_json: bool) -> None:
    figures = {name: getattr(learned, name) for name in ("learned", "denied", "marked", "widened", "uncovered")}
    if as_json:
        shown = {"file": str(output) if output else None, "policy": text, **figures}
        print_json_lines([{**shown, "rules": learned.evidence()}])
        return
    if output is None:
        typer.echo(text, nl=False)
    summary = f"{count(len(learned.rules), 'rule')} from {count(learned.learned, 'call')}"
    summary += f", {count(len(learned.hosts), 'host')}" if learned.knows_hosts else ", no hosts (they are not recorded)"
    left = f"not learned: {learned.denied} denied, {learned.marked} marked"
    typer.echo(
        f"{summary}; {left}" + (f"; {len(learned.uncovered)} not covered" if learned.uncovered else ""), err=True
    )
