"""The options that choose calls or events, and reading them into a filter."""

from __future__ import annotations

import re
import time
from typing import Annotated, Literal

import typer

from proxy.commands.time_format import parse_time
from proxy.core.event import Filter
from proxy.core.event_columns import segments
from proxy.errors import ConfigError

# The first `=` outside quotes parts path and value: a quoted name may hold one.
_ARGUMENT = re.compile(r"""((?:\["(?:[^"\\]|\\.)*"\]|[^=])*?)=(.*)""", re.DOTALL)
Since = Annotated[
    str | None, typer.Option(help="From then on: an age (90s, 30m, 12h, 7d, 2w) or a time (2026-01-31T18:00, UTC).")
]
Until = Annotated[str | None, typer.Option(help="Before then: an age or a time.")]
Agent = Annotated[str | None, typer.Option(help="Who called; `*` stands for any characters.")]
Server = Annotated[str | None, typer.Option(help="The MCP server; `*` as above.")]
Tool = Annotated[str | None, typer.Option(help="The tool; `*` as above.")]
Decision = Annotated[Literal["allow", "deny", "propose"] | None, typer.Option(help="What was decided.")]
Rule = Annotated[str | None, typer.Option(help="The rule that decided.")]
Arg = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH=VALUE", help="An argument and its value, such as path=/etc/passwd or options.depth=3."),
]
Claim = Annotated[
    list[str] | None,
    typer.Option(metavar="CLAIM=VALUE", help="A claim of the agent's, such as groups=sre, sub=alice or act.sub=bot."),
]


def read_filter(
    since: Since = None,
    until: Until = None,
    agent: Agent = None,
    server: Server = None,
    tool: Tool = None,
    decision: Decision = None,
    rule: Rule = None,
    arg: Arg = None,
    claim: Claim = None,
) -> Filter:
    """Return what the options say. Raises ConfigError where one of them cannot be read."""
    now = time.time()
    made = Filter(
        since=parse_time(since, "--since", now) if since else None,
        until=parse_time(until, "--until", now) if until else None,
        agent=agent,
        server=server,
        tool=tool,
        decision=decision,
        rule=rule,
        arguments=tuple(map(_argument, arg or ())),
        claims=tuple(map(_claim, claim or ())),
    )
    if made.since is not None and made.until is not None and made.since >= made.until:
        raise ConfigError(f"--since {since} is not before --until {until}")
    return made


def _argument(text: str) -> tuple[str, str]:
    match = _ARGUMENT.fullmatch(text)
    path, value = match.groups() if match else (".", "")
    try:
        segments(path or ".")
    except ValueError as error:
        raise ConfigError(
            f"--arg {text!r} is not a path and its value; write path=/etc/passwd, options.depth=3, files[0].name=x, "
            """or ["a.b=c"].d=x for a name with dots or other signs in it"""
        ) from error
    return path, value


def _claim(text: str) -> tuple[str, str]:
    # The last `=`: the name of a claim may be a URL with one in its query, and values of groups have none.
    name, found, value = text.rpartition("=")
    if not found or not name:
        raise ConfigError(f"--claim {text!r} is not a claim and its value; write groups=sre or sub=alice")
    return name, value
