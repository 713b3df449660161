"""One call as a timeline: what happened, step by step, from its recorded events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.event import LogEntry

type Tone = Literal["allow", "deny", "propose", "other"]

_TITLES: Final = {
    "decided": "Decided",
    "completed": "Answered",
    "proposed": "Proposed",
    "approved": "Approved",
    "rejected": "Rejected",
    "committed": "Commit token used",
    "observed": "Seen by strace",
    "review_failed": "A decision could not be stored",
}
_TONES: Final[dict[str, Tone]] = {
    "approved": "allow",
    "rejected": "deny",
    "proposed": "propose",
    "review_failed": "deny",
}
# What the page shows at the top, once for the whole call, or that says nothing to a reader.
_SHARED: Final = frozenset(
    {
        *("schema_version", "event_id", "kind", "time", "writer", "host", "proxy_version", "call_id", "session"),
        *("jsonrpc_id", "agent", "authenticated", "server", "transport", "revision", "method", "tool", "arguments"),
        *("arguments_hash", "detail", "redactions"),
    }
)
_LABELS: Final = {
    "decision": "Decision",
    "reason": "Reason",
    "rule": "Rule that decided",
    "rules": "Rules that matched",
    "shadow_rules": "Shadow rules that matched",
    "policy_version": "Policy",
    "gate_ms": "Time in the gate",
    "upstream_ms": "Time at the server",
    "total_ms": "Time in all",
    "result_digest": "Digest of the result",
    "result_size": "Size of the result",
    "is_error": "The tool reported an error",
    "outcome": "Outcome",
    "operator": "By",
    "egress": "Egress",
    "proposal_id": "Proposal",
    "composite_score": "Score",
    "standing": "Approved in advance",
}


@dataclass(frozen=True, slots=True)
class Masked:
    """Something that was found and masked: what kind, where, and whether only in the record."""

    detector: str
    path: str
    record_only: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A system call, or several alike, of a local server."""

    capability: str
    what: str
    count: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a call, and its place in its writer's hash chain."""

    event_id: str
    kind: str
    title: str
    tone: Tone
    time: float
    after_ms: float
    facts: tuple[tuple[str, Any], ...]
    masked: tuple[Masked, ...] = ()
    seen: tuple[Seen, ...] = ()
    writer: str = ""
    number: int | None = None
    link: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A call: the event that decided it, or the first one there is, and its steps."""

    call: Mapping[str, Any]
    steps: tuple[Step, ...]
    proposals: tuple[str, ...] = field(default=())


def timeline(entries: Sequence[tuple[LogEntry, Mapping[str, Any]]]) -> Timeline:
    """Return the timeline of the events of one call, of which there is at least one."""
    events = [event for _, event in entries]
    call = next((event for event in events if event.get("kind") == "decided"), events[0])
    start = float(events[0]["time"])
    steps = tuple(_step(entry, event, start) for entry, event in entries)
    proposals = dict.fromkeys(
        str(found) for event in events if (found := event.get("proposal_id") or _detail(event).get("proposal_id"))
    )
    return Timeline(call, steps, tuple(proposals))


def _step(entry: LogEntry, event: Mapping[str, Any], start: float) -> Step:
    kind, detail = str(event.get("kind")), _detail(event)
    return Step(
        event_id=str(event["event_id"]),
        kind=kind,
        title=_TITLES.get(kind, kind.replace("_", " ").capitalize()),
        tone=_tone(kind, event),
        time=float(event["time"]),
        after_ms=1000 * (float(event["time"]) - start),
        facts=tuple(_facts(event, detail)),
        masked=tuple(_masked(event.get("redactions"))),
        seen=tuple(_seen(detail.get("observations"))),
        writer=entry.writer or "",
        number=entry.seq,
        link=entry.chain or "",
    )


def _tone(kind: str, event: Mapping[str, Any]) -> Tone:
    if kind == "decided":
        decision = event.get("decision")
        return "allow" if decision == "allow" else "deny" if decision == "deny" else "propose"
    if kind == "completed":
        return "deny" if event.get("is_error") or event.get("outcome") in ("error", "tool_error") else "allow"
    return _TONES.get(kind, "deny" if event.get("decision") == "deny" else "other")


def _facts(event: Mapping[str, Any], detail: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield what an event says beside what all events of its call have in common."""
    for name, value in event.items():
        if name not in _SHARED and value not in (None, "", [], {}):
            yield _label(name), _shown(name, value)
    for name, value in detail.items():
        if name != "observations" and value not in (None, "", [], {}):
            yield _label(name), _shown(name, value)


def _label(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " ").capitalize())


def _shown(name: str, value: Any) -> Any:
    if name.endswith("_ms") and isinstance(value, int | float):
        return f"{value:.3f} ms"
    if name == "policy_version" and isinstance(value, str):
        return value[:12]
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value


def _masked(redactions: Any) -> Iterable[Masked]:
    for one in redactions if isinstance(redactions, list) else ():
        if isinstance(one, dict):
            yield Masked(str(one.get("detector")), str(one.get("path")), one.get("record_only") is True)


def _seen(observations: Any) -> Iterable[Seen]:
    for one in observations if isinstance(observations, list) else ():
        if isinstance(one, dict):
            target = one.get("path") or one.get("peer") or one.get("name") or " ".join(map(str, one.get("argv") or ()))
            what = f"{one.get('action', '')} {target}".strip() + (f" ({one['error']})" if one.get("error") else "")
            yield Seen(str(one.get("capability")), what, int(one.get("count") or 1), str(one.get("evidence") or ""))


def _detail(event: Mapping[str, Any]) -> Mapping[str, Any]:
    detail = event.get("detail")
    return detail if isinstance(detail, dict) else {}
