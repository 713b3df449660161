"""Finds violations of a sandbox profile among what was observed in a call. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.sandbox.violations import unique, violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import JsonObject
    from proxy.sandbox.violations import Boundaries

MAX_RECORDED: Final = 40


@dataclass(frozen=True, slots=True)
class _Recorded:
    capability: str
    action: str
    path: str | None
    peer: str | None
    name: str | None
    error: str | None


def with_violations(record: JsonObject, granted: Boundaries, *, enforced: bool) -> JsonObject:
    """Return a record of observations with the `violations` among them, if there are any."""
    found = list(unique(violations(_entries(record), granted, enforced=enforced)))
    if not found:
        return record
    shown = [{**each.shown(), **({"count": count} if count > 1 else {})} for each, count in found]
    more = {"more_violations": len(shown) - MAX_RECORDED} if len(shown) > MAX_RECORDED else {}
    return {**record, "violations": shown[:MAX_RECORDED], **more}


def _entries(record: JsonObject) -> Iterator[_Recorded]:
    observations = record.get("observations")
    for entry in observations if isinstance(observations, list) else ():
        if isinstance(entry, dict):
            fields = {name: entry.get(name) for name in ("path", "peer", "name", "error")}
            texts = {name: value if isinstance(value, str) else None for name, value in fields.items()}
            yield _Recorded(str(entry.get("capability")), str(entry.get("action")), **texts)
