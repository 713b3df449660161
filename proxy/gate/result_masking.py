"""Masking what comes message by message: a secret begun in one and ended in a later one is found.

Messages are not held back for the next to come: a progress message that waits is no progress message. So the part of
a secret that went first has gone; what follows is masked, and the finding says so. A call under way remembers the end
of what was said to it: that is all that is changed here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from proxy.gate.opaque_values import FROM_SERVER, restore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.interfaces import Redactor
    from proxy.core.model import Finding, InFlightCall, Json, JsonObject, Redaction, Suppression
    from proxy.gate.issued_names import IssuedNames

KEPT: Final = 512
"""Characters of what was said before that are scanned again; a redactor joins strings of this length whole."""
MAX_NAMES: Final = 64  # names in one message under which text may continue
WALL: Final = "\n \n"
PLUMBING: Final = frozenset(
    ("jsonrpc", "id", "method", "progressToken", "level", "logger", "type", "role", "mimeType", "event", "resultType")
)
"""Keys whose strings are the protocol's own, and stand between the pieces of a text without ending it."""


def mask_result(
    redactor: Redactor, in_flight: InFlightCall, value: JsonObject, issued: IssuedNames | None = None
) -> tuple[JsonObject | None, tuple[Finding, ...]]:
    """Return the response masked, or None where it may not be passed on, and what was found."""
    findings: tuple[Finding, ...] = ()
    result: JsonObject | None = value
    for redaction in in_flight.decision.redactions:
        if "result" not in redaction.on or result is None:
            continue
        masked, found = _mask_next(redactor, in_flight, result, redaction, issued)
        findings += found
        if not found or redaction.action == "report":
            continue
        if not isinstance(masked, dict):
            raise TypeError(f"masking made {type(masked).__name__} of an object")
        forwardable = redaction.action == "mask" and all(finding.maskable for finding in found)
        result = masked if forwardable else None
    return result, findings


def mask_beside(
    redactor: Redactor,
    in_flight: InFlightCall,
    value: Any,
    redactions: Sequence[Redaction] | None = None,
    issued: IssuedNames | None = None,
) -> Any:
    """Return masked what is sent beside the answer; what was found is recorded when the call ends.

    `redactions` are those to apply, if not those of the call alone.
    """
    for redaction in in_flight.decision.redactions if redactions is None else redactions:
        if "result" in redaction.on:
            masked, found = _mask_next(redactor, in_flight, value, redaction, issued)
            in_flight.findings += found
            value = masked if found and redaction.action != "report" else value
    in_flight.said = said_after(in_flight.said, value)
    return value


def _mask_next(
    redactor: Redactor, in_flight: InFlightCall, value: Json, redaction: Redaction, issued: IssuedNames | None
) -> tuple[Json, tuple[Finding, ...]]:
    """Mask what follows what the server has said to this call so far."""
    masked, found, begun = mask_after(redactor, in_flight.said, value, redaction.detectors, redaction.suppressions)
    in_flight.begun = in_flight.begun or begun
    if not found:
        return masked, found

    def issue(opaque: str) -> bool:
        if issued is not None:
            issued.add_opaque(in_flight, opaque)
        return True

    return restore(value, masked, found, FROM_SERVER, issue)


def mask_after(
    redactor: Redactor, before: str, value: Any, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
) -> tuple[Json, tuple[Finding, ...], bool]:
    """Mask `value`, which follows `before`; return what was found in it, and whether any of that began before."""
    if not before:
        return *redactor.mask(value, detectors, suppressions), False
    names = dict.fromkeys(name for name, _ in _strings(value) if name not in PLUMBING)
    # A redactor joins strings of one name, so what was said goes before each; and all strings, so a wall is between.
    whole: Json = {"before": dict.fromkeys(list(names)[:MAX_NAMES], before), "wall": WALL, "now": value}
    inside = [replace(entry, path=f"now.{entry.path}") if entry.path else entry for entry in suppressions]
    masked, found = redactor.mask(whole, detectors, inside)
    assert isinstance(masked, dict)
    begun = {finding.fingerprint for finding in found if finding.path.startswith("before")}
    mine = tuple(
        replace(finding, path=finding.path.removeprefix("now").removeprefix("."))
        for finding in found
        if not finding.path.startswith("before")
    )
    return masked["now"], mine, any(finding.fingerprint in begun for finding in mine)


def said_after(before: str, value: Any) -> str:
    """Return the end of what was said, once `value` has followed `before`."""
    text = "".join(text for name, text in _strings(value) if name not in PLUMBING)
    return (before + text)[-KEPT:]


def _strings(value: Any) -> Iterator[tuple[str, str]]:
    """Return every string with the key it stands under, in document order; nothing recurses."""
    stack: list[tuple[str, Any]] = [("now", value)]
    while stack:
        name, item = stack.pop()
        if isinstance(item, str):
            yield name, item
        elif isinstance(item, dict):
            stack.extend((key, item[key]) for key in reversed(item))
        elif isinstance(item, list):
            stack.extend((name, child) for child in reversed(item))
