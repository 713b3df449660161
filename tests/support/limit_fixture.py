"""Charges for tests of limits, and the plainest model of a sliding window: a list of all that was ever charged."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.limits import Charge

HOUR = 3600.0


def charge(
    limit: str = "mail", amount: int = 1, most: int = 3, *, seconds: float = HOUR, blocks: bool = True
) -> Charge:
    kind = "concurrency" if not seconds else "count"
    return Charge(limit, kind, f'["{limit}", "{kind}", "agent=bot"]', amount, most, seconds, blocks)


@dataclass
class WindowModel:
    """What is used is the sum of what was charged less than a window ago."""

    most: int
    seconds: float
    charged: list[tuple[float, int, str]] = field(default_factory=list)

    def used(self, now: float) -> int:
        return sum(amount for at, amount, _ in self.charged if at > now - self.seconds)

    def reserve(self, call_id: str, amount: int, now: float) -> bool:
        if self.used(now) + amount > self.most:
            return False
        self.charged.append((now, amount, call_id))
        return True

    def room_at(self, amount: int, now: float) -> float | None:
        """Return when there is room for an amount: the moment in which enough has left the window."""
        if amount > self.most:
            return None
        return min(at + self.seconds for at, _, _ in self.charged if self.used(at + self.seconds) + amount <= self.most)

    def give_back(self, call_id: str) -> None:
        self.charged = [one for one in self.charged if one[2] != call_id]
