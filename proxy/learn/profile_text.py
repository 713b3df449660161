"""Writes profiles as YAML that people read: each line with its evidence or its origin as a comment. Pure.

Paths and names of tools come from a server that is not trusted: a comment never has a second line, and every value
is quoted unless it is plainly a word.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from proxy.system.terminal_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proxy.learn.learned import LearnedProfile, Line

SECTIONS = ("read", "write", "exec", "sockets", "env")
MAX_COMMENT = 120
MAX_LEFT_OUT = 60
_MARKS = re.compile(r"[*?\[]")
_PLAIN = re.compile(r"[A-Za-z0-9_/$.][A-Za-z0-9_/$.@+-]*")
# Words that YAML reads as something else than text.
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "none", "any", "~"})


def profile_text(learned: LearnedProfile, when: str) -> str:
    """Return the file of a learned profile."""
    return "\n".join(_lines(learned, when)) + "\n"


def _lines(learned: LearnedProfile, when: str) -> Iterator[str]:
    yield f"# Sandbox profile of {comment(learned.server)}, learned from {learned.source} on {when}."
    yield "# Every line says who needed it and how often. What is not here is refused."
    yield f"description: {quoted(f'Learned from {learned.source}: {learned.seen} acts of {learned.server}.')}"
    if learned.extends:
        why = ", ".join(line.evidence for line in learned.extends)
        yield f"extends: [{', '.join(quoted(line.value) for line in learned.extends)}]  # {comment(why)}"
    for name in SECTIONS:
        yield from section(name, learned.sections.get(name, ()))
    yield from _network(learned)
    yield from _tools(learned.tools)
    yield "on_violation: tell"
    yield "mode: enforce"
    yield from _left_out(learned)


def section(name: str, lines: Sequence[Line]) -> Iterator[str]:
    """Return a list of a profile; nothing where it is empty."""
    if lines:
        yield f"{name}:"
        yield from (f"  - {quoted(line.value)}  # {comment(line.evidence)}" for line in lines)


def _network(learned: LearnedProfile) -> Iterator[str]:
    if learned.any_host is not None:
        yield f"network: any  # {comment(learned.any_host.evidence)}"
    elif learned.network:
        yield from section("network", learned.network)
    else:
        yield "network: none  # it reached nothing"


def _tools(lines: Iterable[Line]) -> Iterator[str]:
    by_tool: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        tool, _, what = line.value.rpartition("\0")  # the server names its tools: the first NUL may be its own
        by_tool.setdefault(tool, []).append((what, line.evidence))
    if by_tool:
        yield "tools:"
    for tool, those in by_tool.items():
        inside = ", ".join(f"{what}: from arguments" for what, _ in those)
        # A tool is matched by glob: a mark in its own name must stand for itself.
        yield f"  {json.dumps(_MARKS.sub(r'[\g<0>]', tool))}: {{{inside}}}  # {comment(those[0][1])}"


def _left_out(learned: LearnedProfile) -> Iterator[str]:
    if not learned.left_out:
        return
    yield "# Left out. Each of these was done, and this profile refuses it:"
    for each in learned.left_out[:MAX_LEFT_OUT]:
        yield f"#   {comment(each.what)} ({comment(each.why)})"
    if len(learned.left_out) > MAX_LEFT_OUT:
        yield f"#   and {len(learned.left_out) - MAX_LEFT_OUT} more"


def quoted(value: str) -> str:
    """Return a value as YAML: a plain word as it is, anything else in the quotes of JSON, which YAML reads."""
    plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS and not value[0].isdigit()
    return value if plain else json.dumps(value)


def comment(text: str) -> str:
    """Return text that fits behind a `#`: one line, without control characters, bounded."""
    shown = " ".join(printable(text).split())
    return shown if len(shown) <= MAX_COMMENT else f"{shown[: MAX_COMMENT - 1]}…"
