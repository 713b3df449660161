"""Masking what a server sends back to a call: its answer, and what it says beside it. Pure but for the exchange.

An exchange remembers the end of what was said to it, so a secret in pieces is found (said.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.gate.said import mask_after, said_after

if TYPE_CHECKING:
    from proxy.core.interfaces import Redactor
    from proxy.core.model import Finding, InFlightCall, Json, JsonObject, Redaction


def mask_result(
    redactor: Redactor, in_flight: InFlightCall, value: JsonObject
) -> tuple[JsonObject | None, tuple[Finding, ...]]:
    """Return the response masked, or None where it may not be given on, and what was found."""
    findings: tuple[Finding, ...] = ()
    result: JsonObject | None = value
    for redaction in in_flight.decision.redactions:
        if "result" not in redaction.on or result is None:
            continue
        masked, found = _mask_next(redactor, in_flight, result, redaction)
        findings += found
        if not found or redaction.action == "report":
            continue
        if not isinstance(masked, dict):
            raise TypeError(f"masking made {type(masked).__name__} of an object")
        forwardable = redaction.action == "mask" and all(finding.maskable for finding in found)
        result = masked if forwardable else None
    return result, findings


def mask_beside(redactor: Redactor, in_flight: InFlightCall, value: Any) -> Any:
    """Return masked what is sent beside the answer; what was found is told of when the call ends."""
    for redaction in in_flight.decision.redactions:
        if "result" in redaction.on:
            masked, found = _mask_next(redactor, in_flight, value, redaction)
            in_flight.findings += found
            value = masked if found and redaction.action != "report" else value
    in_flight.said = said_after(in_flight.said, value)
    return value


def _mask_next(
    redactor: Redactor, in_flight: InFlightCall, value: Json, redaction: Redaction
) -> tuple[Json, tuple[Finding, ...]]:
    """Mask what follows what the server has said to `exchange` so far."""
    masked, found, begun = mask_after(redactor, in_flight.said, value, redaction.detectors, redaction.suppressions)
    in_flight.begun = in_flight.begun or begun
    return masked, found
