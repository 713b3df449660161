"""One line of the list of calls, for the page and for what follows it live. Pure.

The browser puts these values into text nodes as they are, so all that is shown is made visible here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.console.render import clock_time, iso_time
from proxy.console.text import preview, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.core.event import CallRecord

_NAMES = ("agent", "server", "tool", "reason", "rule", "outcome")
LABELS = {"allow": "allowed", "deny": "denied", "propose": "proposed"}


def row(call: CallRecord) -> dict[str, Any]:
    """Return a call of the store as the list shows it."""
    values = {name: getattr(call, name) for name in (*_NAMES, "decision", "call_id", "event_id", "arguments")}
    values |= {"redactions": call.redactions, "shadow_rules": call.shadow_rules, "time": call.time}
    return row_of_event(values) | ending(
        {"outcome": call.outcome, "is_error": call.is_error, "total_ms": call.total_ms}, decision=call.decision
    )


def row_of_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `decided` event of a call as the list shows it."""
    decision = event.get("decision") or ""
    return {
        "id": visible(event.get("call_id") or event["event_id"]),
        "time": iso_time(event["time"]),
        "clock": clock_time(event["time"]),
        "decision": decision if decision in LABELS else "other",
        "label": LABELS.get(decision, visible(decision) or "unknown"),
        "arguments": preview(event.get("arguments")),
        "masked": len(event.get("redactions") or ()),
        "shadow": bool(event.get("shadow_rules")),
        **{name: visible(event.get(name)) for name in _NAMES},
        **ending({}, decision=decision),
    }


def ending(event: Mapping[str, Any], decision: str | None = None) -> dict[str, Any]:
    """Return how a call ended, as the list shows it."""
    took = event.get("total_ms")
    outcome = visible(event.get("outcome"))
    return {
        "outcome": outcome or ("" if decision != "allow" else "running"),
        "failed": bool(event.get("is_error")) or outcome in ("error", "tool_error"),
        "ms": "" if took is None else f"{took:.1f} ms" if took < 1000 else f"{took / 1000:.2f} s",
    }
