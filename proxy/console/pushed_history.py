"""What was pushed, for the console's policy page: the newest steps, and whether each of them can be verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError, StoreUnavailableError
from proxy.fleet.policy_keys import trusted_path
from proxy.rollout.keys import trusted_keys
from proxy.rollout.publisher import Publisher
from proxy.store.rollout_store import Rollout

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.console.trail import Trail
    from proxy.rollout.publisher import PastStep

LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class PushedStep:
    """A row of the page."""

    number: int
    action: str
    stable: str
    canary: str
    operator: str
    time: float | None
    note: str
    problem: str


async def pushed_steps(settings: Settings, trail: Trail) -> list[PushedStep]:
    """Return the newest steps, the newest first; none where the store does not answer."""
    events = trail.store()
    if events is None:
        return []
    try:
        keys = trusted_keys(trusted_path(settings))
        return [_row(one) for one in await Publisher(Rollout(events.database), keys).history(LISTED)]
    except (StoreUnavailableError, ConfigError):
        return []


def _row(one: PastStep) -> PushedStep:
    step = one.step
    if step is None:
        return PushedStep(one.signed.number, "not valid", "", "", "", None, "", one.problem or "")
    canary = step.canary
    whose = ", ".join(canary.agents or canary.replicas) if canary else ""
    shown = f"{canary.version.number} for {whose}" if canary else ""
    return PushedStep(
        step.number, step.action, str(step.stable.number), shown, step.operator, step.at, step.note, one.returned or ""
    )
