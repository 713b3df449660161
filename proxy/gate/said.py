"""Masking what comes message by message: a secret begun in one and ended in a later one is found. Pure.

Messages are not held back for the next to come: a progress message that waits is no progress message. So
the part of a secret that went first has gone; what follows is masked, and the finding tells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.interfaces import Redactor
    from proxy.core.masking import Suppression
    from proxy.core.model import Finding, Json

KEPT: Final = 512
"""Characters of what was said before that are looked at again; a redactor joins strings of this length whole."""
MAX_NAMES: Final = 64
"""Names in one message under which text may go on."""
WALL: Final = "\n \n"
PLUMBING: Final = frozenset(
    ("jsonrpc", "id", "method", "progressToken", "level", "logger", "type", "role", "mimeType", "event", "resultType")
)
"""Keys whose strings are the protocol's own, and stand between the pieces of a text without ending it."""


def mask_after(
    redactor: Redactor,
    before: str,
    value: Any,
    detectors: Sequence[str],
    suppressions: Sequence[Suppression] = (),
) -> tuple[Json, tuple[Finding, ...], bool]:
    """Mask `value`, which follows `before`; say what was found in it, and whether any of that began before."""
    if not before:
        return *redactor.mask(value, detectors, suppressions), False
    names = dict.fromkeys(name for name, _ in _strings(value) if name not in PLUMBING)
    # A redactor joins strings of one name, so what was said goes before each; and all strings, so a wall is between.
    whole: Json = {"before": dict.fromkeys(list(names)[:MAX_NAMES], before), "wall": WALL, "now": value}
    inside = [replace(entry, path=f"now.{entry.path}") if entry.path else entry for entry in suppressions]
    masked, found = redactor.mask(whole, detectors, inside)
    assert isinstance(masked, dict)
    begun = {finding.fingerprint for finding in found if finding.path.startswith("before")}
    mine = tuple(_inside(finding) for finding in found if not finding.path.startswith("before"))
    return masked["now"], mine, any(finding.fingerprint in begun for finding in mine)


def said_after(before: str, value: Any) -> str:
    """Return the end of what was said, once `value` has followed `before`."""
    text = "".join(text for name, text in _strings(value) if name not in PLUMBING)
    return (before + text)[-KEPT:]


def _inside(finding: Finding) -> Finding:
    return replace(finding, path=finding.path.removeprefix("now").removeprefix("."))


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
