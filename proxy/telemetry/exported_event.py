"""An audit event as every exported form reads it: parsed once, with what all forms say of it alike. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from proxy.core.json_codec import encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.core.event import LogEntry

type Severity = Literal["info", "low", "medium", "high"]

# What was found in what servers say or do: no call, but something that a person should look at.
FINDINGS = frozenset({"pin_changed", "hidden_characters", "injection_phrase", "injection_found", "behaviour_found"})
# What a request names, where that is no argument of a tool.
_NAMED = {"prompts/get": "name"} | dict.fromkeys(
    ("resources/read", "resources/subscribe", "resources/unsubscribe"), "uri"
)
# Details that are ids, names and numbers of the proxy's own, and never what an agent or a server said.
_PLAIN_DETAIL = (
    *("traceparent", "proposal_id", "standing_id", "halt_id", "operator", "via", "sent_by", "egress"),
    *("labels", "limits", "annotations", "missed", "since", "composite_score", "outcome", "phase"),
)
# Control characters, ends of lines in Unicode, marks that reverse what is read, and halves of pairs.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
MAX_WORD = 200
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_FAILED = frozenset({"tool_error", "error", "withheld", "unreadable", "upstream_error", "interrupted"})


@dataclass(frozen=True, slots=True)
class ExportedEvent:
    """An event, and its place in its writer's chain. `fields` is the event's JSON object."""

    fields: Mapping[str, Any]
    writer: str | None = None
    seq: int | None = None
    chain: str | None = None

    @property
    def event_id(self) -> str:
        return str(self.fields["event_id"])

    @property
    def kind(self) -> str:
        return str(self.fields["kind"])

    @property
    def time(self) -> float:
        return float(self.fields["time"])

    @property
    def call_id(self) -> str | None:
        return self.text("call_id")

    @property
    def detail(self) -> Mapping[str, Any]:
        detail = self.fields.get("detail")
        return detail if isinstance(detail, dict) else {}

    def text(self, name: str) -> str | None:
        """Return a field as text; None where it is absent or empty."""
        value = self.fields.get(name)
        return None if value is None or value == "" else str(value)

    def number(self, name: str) -> float | None:
        value = self.fields.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def who(self) -> str | None:
        """The agent, or the operator whose act it is."""
        operator = self.detail.get("operator")
        return self.text("agent") or (operator if isinstance(operator, str) else None)

    @property
    def denied(self) -> bool:
        return self.fields.get("decision") == "deny"

    @property
    def failure(self) -> str | None:
        """Why it did not end well: a reason code of a refusal, or the outcome of a call. One of few."""
        if self.denied:
            return self.text("reason") or "denied"
        outcome = self.text("outcome")
        return outcome if outcome in _FAILED or (outcome or "").startswith("http_") else None

    @property
    def severity(self) -> Severity:
        if self.kind in FINDINGS or self.kind in ("act_refused", "audit_gap"):
            return "high"
        if self.denied or self.kind.endswith("_refused"):
            return "medium"
        return "low" if self.failure is not None or self.fields.get("is_error") is True else "info"

    @property
    def summary(self) -> str:
        """One line for people: what happened, to what, by whom and why."""
        what = " ".join(filter(None, (self.text("method"), self.text("tool"))))
        words = [self.kind, self.text("decision"), what or None]
        words += [f"on {server}" if (server := self.text("server")) else None, f"by {self.who}" if self.who else None]
        why = ", ".join(filter(None, (self.text("reason"), self.text("rule"), self.text("outcome"))))
        # Agents choose some of these words, and could choose long ones.
        parts = [shorten(word, MAX_WORD) for word in (*words, f"({why})" if why else None) if word]
        return " ".join(parts)


def read_entry(entry: LogEntry, *, with_arguments: bool = False) -> ExportedEvent:
    """Parse an event; what is not to leave is left out. Raises ValueError where its text is no event."""
    fields = _parse(entry)
    return ExportedEvent(
        _leaving(fields, with_arguments=with_arguments),
        entry.writer or _text(fields.get("writer")),
        entry.seq,
        entry.chain,
    )


def _leaving(fields: dict[str, Any], *, with_arguments: bool) -> dict[str, Any]:
    """Return the fields that leave the machine. Arguments, and details that may quote them, only by choice."""
    left = dict(fields)
    session = left.get("session")
    if isinstance(session, str) and left.get("transport") == "sse":
        # A session of HTTP+SSE is an endpoint with its query, in which servers put more than an id.
        left["session"] = sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    if with_arguments:
        return left
    asked, name = left.pop("arguments", None), _NAMED.get(str(left.get("method")))
    if name is not None and isinstance(asked, dict) and isinstance(asked.get(name), str):
        left["arguments"] = {name: asked[name]}
    detail = left.pop("detail", None)
    # What was found is what a finding is about.
    kept = detail if left.get("kind") in FINDINGS else _plain_detail(detail)
    return left | {"detail": kept} if kept else left


def _plain_detail(detail: object) -> dict[str, Any]:
    return {name: detail[name] for name in _PLAIN_DETAIL if name in detail} if isinstance(detail, dict) else {}


def _parse(entry: LogEntry) -> dict[str, Any]:
    try:
        fields = json.loads(entry.body)
        if _SURROGATE.search(entry.body):
            # Half a pair is no text in any of the forms.
            fields = json.loads(encode_json(fields).encode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("the event is nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError("the event is no JSON object")  # noqa: TRY004  it is the text that is wrong
    for name in ("event_id", "kind"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise ValueError(f"the event has no {name}")
    time = fields.get("time")
    # Beyond the year 9999, or before 1970, no form of these has a spelling for it.
    if not isinstance(time, (int, float)) or isinstance(time, bool) or not 0 <= time < 253_402_300_800:
        raise ValueError("the event has no time")
    return fields


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def json_line(value: object) -> str:
    """Return a JSON value as one line, whatever it says: what a reader or a terminal could take for more is escaped."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_json(value))
