"""MCP servers as the console shows them: their tools, what is not as approved, and what a probe found. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.console.text import visible
from proxy.console.word_diff import Piece, word_diff
from proxy.gate.tool_pins import changed_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxy.audit.call_event import CallEvent
    from proxy.gate.tool_pins import Pin, ServerPins, ToolPrint

_ORDER: Final = {"changed": 0, "new": 1, "edited": 2, "pinned": 3}


@dataclass(frozen=True, slots=True)
class FieldDiff:
    name: str
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class ToolView:
    """A tool as last seen, and how that differs from what was approved."""

    name: str
    state: str
    since: float
    digest: str
    description: str
    hints: tuple[str, ...]
    hidden: tuple[str, ...]
    differences: tuple[FieldDiff, ...]


@dataclass(slots=True)
class ServerRow:
    name: str
    states: dict[str, int] = field(default_factory=dict[str, int])
    calls: float = 0.0
    denied: float = 0.0
    probe: ProbeView | None = None

    @property
    def tools(self) -> int:
        return sum(self.states.values())


@dataclass(slots=True)
class ProbeView:
    """What a probe found: for each tool what it declares, what it did, and what is wrong with that."""

    session: str
    time: float
    outcome: str
    problem: str
    tools: list[ProbedTool] = field(default_factory=list["ProbedTool"])
    findings: list[Mapping[str, Any]] = field(default_factory=list["Mapping[str, Any]"])


@dataclass(frozen=True, slots=True)
class ProbedTool:
    name: str
    declares: tuple[str, ...]
    did: tuple[tuple[str, str], ...]


def tools_of(pins: ServerPins) -> list[ToolView]:
    """Return a server's tools, those first that are not as approved."""
    made = [_tool(name, pin) for name, pin in pins.tools.items()]
    return sorted(made, key=lambda one: (_ORDER[one.state], one.name))


def _tool(name: str, pin: Pin) -> ToolView:
    definition = pin.seen.definition or {}
    annotations = definition.get("annotations")
    hints = annotations.items() if isinstance(annotations, dict) else ()
    return ToolView(
        name=name,
        state=pin.state,
        since=pin.since,
        digest=pin.seen.digest,
        description=_text(definition.get("description")) if definition else "(too long to keep)",
        hints=tuple(f"{hint}: {_text(value)}" for hint, value in hints),
        hidden=pin.seen.hidden,
        differences=tuple(_differences(pin)) if pin.state in ("changed", "edited") else (),
    )


def _differences(pin: Pin) -> Iterable[FieldDiff]:
    assert pin.approved is not None
    for name in changed_fields(pin.approved, pin.seen):
        before, after = _field(pin.approved, name), _field(pin.seen, name)
        yield FieldDiff(name, word_diff(before, after))


def _field(made: ToolPrint, name: str) -> str:
    if made.definition is None:
        return f"(too long to keep; digest {made.fields.get(name, 'none')})"
    # Visible before it is compared: a character that shows nothing must show as a difference.
    return visible(_text(made.definition[name]), lines=True) if name in made.definition else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, indent=1, sort_keys=True)


def servers(
    pins: Mapping[str, ServerPins], events: Iterable[CallEvent], probes: Mapping[str, ProbeView]
) -> list[ServerRow]:
    """Return every server that is known from its tools, its calls or a probe, by name."""
    rows = {name: ServerRow(name) for name in {*pins, *probes}}
    for name, known in pins.items():
        for pin in known.tools.values():
            rows[name].states[pin.state] = rows[name].states.get(pin.state, 0) + 1
    for event in events:
        if event.is_call and event.server:
            row = rows.setdefault(event.server, ServerRow(event.server))
            row.calls += event.weight
            row.denied += event.weight if event.decision == "deny" else 0
    for name, probe in probes.items():
        rows[name].probe = probe
    return sorted(rows.values(), key=lambda row: (not (row.states.keys() - {"pinned", "edited"}), row.name))


def probes(events: Iterable[Mapping[str, Any]]) -> dict[str, ProbeView]:
    """Return the last probe of each server, from events that come newest first."""
    found: dict[str, ProbeView] = {}
    events = list(events)
    for event in events:
        name = event.get("server")
        if event.get("kind") == "probed" and isinstance(name, str) and name not in found:
            found[name] = _probe(event)
    for event in events:
        probe = found.get(str(event.get("server")))
        if event.get("kind") == "finding" and probe is not None and event.get("session") == probe.session:
            probe.findings.append(_dict(event.get("detail")))
    return found


def _probe(event: Mapping[str, Any]) -> ProbeView:
    detail = _dict(event.get("detail"))
    observed, declared = _dict(detail.get("tools")), _dict(detail.get("declared"))
    return ProbeView(
        session=str(event.get("session")),
        time=float(event["time"]),
        outcome=str(event.get("outcome") or ""),
        problem=str(detail.get("problem") or ""),
        tools=[
            ProbedTool(name, _declares(_dict(declared.get(name))), _did(_dict(observed[name]))) for name in observed
        ],
    )


def _declares(scope: Mapping[str, Any]) -> tuple[str, ...]:
    words = [name.replace("_", " ") for name in ("read_only", "network", "executes") if scope.get(name) is True]
    paths = scope.get("paths")
    return (*words, *(str(path) for path in paths)) if isinstance(paths, list) else tuple(words)


def _did(observed: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    made = []
    for capability, seen in observed.items():
        targets = _dict(seen).get("targets")
        made.append((capability, ", ".join(map(str, targets)) if isinstance(targets, list) else ""))
    return tuple(made)


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
