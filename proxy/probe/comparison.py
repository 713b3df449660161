"""Compares one probe of a server with another: what its tools say of themselves, and what they do. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from proxy.gate.tool_descriptions import find_hidden, strings
from proxy.gate.tool_pins import changed_fields, print_tool
from proxy.probe.findings import MAX_EVIDENCE, MAX_TARGETS, counts, from_rule
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.findings import ProbeFinding
    from proxy.probe.observation_facts import ProbeObservation, RunContext
    from proxy.probe.rulebook import Rulebook

# No layout needs so many between two words.
MANY_BLANKS, MANY_LINES = 80, 25
_PUSHED_AWAY = re.compile(
    rf"\S[^\S\n]{{{MANY_BLANKS},}}\S|\S(?:[^\S\n]{{0,200}}\n){{{MANY_LINES + 1},}}[^\S\n]{{0,200}}\S"
)
NETWORK = frozenset({str(Capability.NET_CONNECT), str(Capability.NET_DNS)})


def judge_manifest(
    tools: Sequence[JsonObject], known: Mapping[str, JsonObject] | None, rulebook: Rulebook
) -> list[ProbeFinding]:
    """Check the tools' definitions, and compare them with those `known` from when they were last accepted."""
    hidden, changed = rulebook.get("hidden-characters"), rulebook.get("manifest-changed")
    hidden_in = {str(tool.get("name")): (*find_hidden(tool), *_pushed_away(tool))[:MAX_EVIDENCE] for tool in tools}
    found = [from_rule(hidden, name, None, evidence=where) for name, where in hidden_in.items() if where]
    if known is None:
        return found
    now = {str(tool.get("name")): tool for tool in tools}
    changes = {name: _changes(known.get(name), now.get(name)) for name in dict.fromkeys([*now, *known])}
    return found + [from_rule(changed, name, None, change) for name, change in changes.items() if change is not None]


def _pushed_away(tool: JsonObject) -> tuple[str, ...]:
    """Return the places of a definition where a window ends before the text does."""
    return tuple(
        f"{path}: text after {MANY_BLANKS} blanks or {MANY_LINES} empty lines"
        for path, text in strings(tool)
        if _PUSHED_AWAY.search(text)
    )


def judge_meanwhile(
    first: Sequence[JsonObject], later: Sequence[JsonObject] | None, when: str, rulebook: Rulebook
) -> list[ProbeFinding]:
    """Compare what a server said of its tools at first with what it says later; nothing where it says nothing.

    Tools that come and go are no finding: some servers have a tool that switches others on.
    """
    before = {str(tool.get("name")): tool for tool in first}
    rule, found = rulebook.get("definition-changed-meanwhile"), []
    for tool in later or ():
        name = str(tool.get("name"))
        if name in before and (change := _changes(before[name], tool)):
            found.append(from_rule(rule, name, None, f"{change}, {when}"))
    return found


def _changes(before: JsonObject | None, after: JsonObject | None) -> str | None:
    if before is None:
        return "Seen: the tool is new"
    if after is None:
        return "Seen: the tool is gone"
    fields = changed_fields(print_tool(before), print_tool(after))
    return f"Seen: changed in {', '.join(fields)}" if fields else None


# What a tool was observed to do: hosts or programs by capability.
type Profile = dict[str, list[str]]


def profile(records: Iterable[ProbeObservation], context: RunContext) -> Profile:
    """Summarise observations so that two runs can be compared: no reads, and no names made up for one run."""
    found: dict[str, set[str]] = {}
    for record in records:
        observation = record.observation
        kind, absent = observation.capability, observation.capability is Capability.IPC_UNIX and not observation.ok
        # Every program reads files all the time: in a profile they would make every run look different.
        if kind is Capability.FS_READ or absent or not counts(record):
            continue
        targets = found.setdefault(str(kind), set())
        if kind in (Capability.NET_CONNECT, Capability.NET_DNS):
            targets.add(observation.name or context.host(observation.peer or ""))
        elif kind is Capability.PROC_EXEC:
            targets.add(posixpath.basename(observation.path or ""))
    return {name: sorted(targets) for name, targets in sorted(found.items())}


def judge_profiles(
    now: Mapping[str, Profile],
    known: Mapping[str, Profile] | None,
    rulebook: Rulebook,
    networked: Collection[str] = (),
) -> list[ProbeFinding]:
    """Compare what tools do with what they did when last accepted; a tool that is not `known` is not compared.

    Tools that are `networked` say so: that they use other hosts than before is worth a note, and no alarm.
    """
    found = []
    for tool, seen in now.items():
        before = (known or {}).get(tool, seen)
        new = {name: sorted(set(targets) - set(before.get(name, ()))) for name, targets in seen.items()}
        news = {name: targets for name, targets in new.items() if targets or name not in before}
        hosts = {name for name in news if name in NETWORK and name in before} if tool in networked else set()
        for rule, names in (("behaviour-changed", news.keys() - hosts), ("hosts-changed", hosts)):
            told = {name: targets for name, targets in news.items() if name in names}
            if told:
                text = "; ".join(f"{name} {', '.join(new[:MAX_TARGETS])}".rstrip() for name, new in told.items())
                found.append(from_rule(rulebook.get(rule), tool or None, next(iter(told)), f"Seen: {text}"))
    return found
