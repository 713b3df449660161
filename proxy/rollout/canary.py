"""Whether a canary does worse than the stable version: shares of denials and errors in the same time. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.core.rollout import SideCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.core.model import AuditEvent
    from proxy.core.rollout import Side

# How a forwarded call ended that counts as an error; what a tool itself reports as one is its answer.
ERRORS: Final = frozenset({"error", "upstream_error", "unreadable", "withheld"})
NOTHING: Final = SideCounts()


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a canary ends by itself: `denials` and `errors` are shares of calls, above those of the stable version."""

    seconds: float = 300.0
    calls: int = 50
    denials: float = 0.1
    errors: float = 0.1


def jump(counts: Mapping[Side, SideCounts], bounds: Bounds) -> str | None:
    """Return why a canary is to end; None where it may go on, or where too few calls were decided to tell."""
    stable, canary = counts.get("stable", NOTHING), counts.get("canary", NOTHING)
    if min(stable.calls, canary.calls) < bounds.calls:
        return None
    for name, bound in (("denials", bounds.denials), ("errors", bounds.errors)):
        before, now = (getattr(side, name) / side.calls for side in (stable, canary))
        if now > before + bound:
            return (
                f"{name} jumped: {now:.1%} of the canary's {canary.calls} calls, "
                f"{before:.1%} of the stable version's {stable.calls}, in {bounds.seconds:g} s"
            )
    return None


class Tally:
    """Counts what each side of a canary decides in this process, until it is taken."""

    def __init__(self) -> None:
        self._versions: tuple[str, str] | None = None
        self._counted: dict[Side, SideCounts] = {}

    def follow(self, versions: tuple[str, str] | None) -> None:
        """Count for another canary, of these two versions, or for none."""
        if versions != self._versions:
            self._versions, self._counted = versions, {}

    def count(self, event: AuditEvent) -> None:
        """Count a decision, or how a call ended. Events of other versions than these two count for none."""
        if self._versions is None or event.policy_version not in self._versions:
            return
        side: Side = "stable" if event.policy_version == self._versions[0] else "canary"
        if event.kind == "decided":
            one = SideCounts(1, int(event.decision == "deny"))
        elif event.kind == "completed" and _is_error(event.outcome):
            one = SideCounts(errors=1)
        else:
            return
        self._counted[side] = self._counted.get(side, NOTHING) + one

    def take(self) -> Mapping[Side, SideCounts]:
        """Return what was counted since the last time."""
        counted, self._counted = self._counted, {}
        return counted

    def put_back(self, counted: Mapping[Side, SideCounts]) -> None:
        """Count again what could not be stored."""
        for side, one in counted.items():
            self._counted[side] = self._counted.get(side, NOTHING) + one


def _is_error(outcome: str | None) -> bool:
    return outcome is not None and (outcome in ERRORS or outcome.startswith("http_5"))
