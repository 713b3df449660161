"""What a learned rule rests on: how many recorded calls, when, and audit ids of the first and last ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_IDS: Final = 5
LAST_IDS: Final = 3


@dataclass(slots=True)
class Evidence:
    """The calls that were added, in whatever order; bounded however many they are."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0
    first_ids: list[str] = field(default_factory=list)
    last_ids: list[str] = field(default_factory=list)

    def add(self, audit_id: str, time: float) -> None:
        self.first = time if not self.count else min(self.first, time)
        self.last = max(self.last, time)
        self.count += 1
        if len(self.first_ids) < FIRST_IDS:
            self.first_ids.append(audit_id)
        else:
            self.last_ids = [*self.last_ids, audit_id][-LAST_IDS:]

    @property
    def audit_ids(self) -> list[str]:
        """Some of the calls that a rule rests on: the first ones and the last ones."""
        return [*self.first_ids, *self.last_ids]


def told(several: Iterable[Evidence]) -> dict[str, Any]:
    """Return what several say together, as JSON."""
    found = list(several)
    return {
        "calls": sum(one.count for one in found),
        "first": min(one.first for one in found),
        "last": max(one.last for one in found),
        "audit_ids": [audit_id for one in found for audit_id in one.audit_ids],
    }
