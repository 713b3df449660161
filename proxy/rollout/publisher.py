"""Publishes steps of the roll-out: reads what is in force, says what comes next, signs it, and stores it once.

Nothing that the store says is signed anew before its own signature is verified: else whoever can write there could have
an operator sign another policy.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.errors import PolicyError
from proxy.rollout.bundle import digest_of, parse_bundle
from proxy.rollout.pushed_policy import check_by_agent
from proxy.rollout.release_file import VerifiedRelease
from proxy.rollout.step import Canary, Step, Version, link_of, sign, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from proxy.audit.signing_keys import PublicKey
    from proxy.core.rollout import ReplicaState, RolloutStore, SignedStep
    from proxy.rollout.bundle import Bundle
    from proxy.rollout.step import Action

SEEN_SECONDS: Final = 60.0  # a replica that said nothing for so long takes no part in a canary
LOOKED_AT: Final = 1000
MOST_AHEAD: Final = 10_000  # a replica that claims to be further ahead than this is not believed
_SHARE: Final = re.compile(r"(\d{1,2}(?:\.\d+)?)%")


class ConflictError(PolicyError):
    """Somebody else published a step in the meantime."""


@dataclass(frozen=True, slots=True)
class PastStep:
    """A stored step, what it says where its signature is good, what is wrong where not, and why its canary ended."""

    signed: SignedStep
    step: Step | None
    problem: str | None = None
    returned: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Where the roll-out is: the newest step that can be verified, and the number that comes next."""

    past: PastStep | None
    next_number: int

    @property
    def step(self) -> Step | None:
        return self.past.step if self.past is not None else None

    @property
    def canary(self) -> Canary | None:
        """The canary that runs, if one does."""
        return self.past.step.canary if self.past and self.past.step and self.past.returned is None else None


class Publisher:
    """Reads and publishes. Raises PolicyError where a step is refused, StoreUnavailableError without the store."""

    def __init__(
        self, store: RolloutStore, keys: Mapping[str, PublicKey], clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock

    async def history(self, limit: int = LOOKED_AT) -> Sequence[PastStep]:
        """Return the steps, the newest first."""
        steps = await self._store.newest(0, limit)
        returns = await self._store.returns(min((step.number for step in steps), default=0))
        return [self._past(step, returns.get(step.number)) for step in steps]

    def _past(self, signed: SignedStep, returned: str | None) -> PastStep:
        try:
            return PastStep(signed, verify(signed, self._keys), None, returned)
        except PolicyError as error:
            return PastStep(signed, None, str(error), returned)

    async def head(self) -> Head:
        past = await self.history()
        newest = next((one for one in past if one.step is not None), None)
        highest = past[0].signed.number if past else 0
        # Replicas may be further than a store that was restored from a backup: they never go back.
        claims = [one.number for one in await self._store.replicas(SEEN_SECONDS)]
        ahead = max((number for number in claims if number <= highest + MOST_AHEAD), default=0)
        return Head(newest, max(highest, ahead) + 1)

    async def bundle(self, version: Version) -> Bundle:
        """Return the policy of a version. Raises PolicyError where the store has another one under its name."""
        text = await self._store.bundle(version.digest)
        if text is None or digest_of(text) != version.digest:
            raise PolicyError(f"the store does not have the policy of version {version.number} as it was signed")
        return parse_bundle(text)

    async def version(self, number: int) -> Version:
        """Return the version of a number. Raises PolicyError where there is none."""
        signed = await self._store.step(number)
        if signed is None:
            raise PolicyError(f"there is no version {number}; `interlock policy history` lists them")
        step = verify(signed, self._keys)
        found = next((version for version in step.versions if version.number == number), None)
        if found is None:
            raise PolicyError(f"step {number} ({step.action}) brought no version; see `interlock policy history`")
        return found

    async def publish(
        self,
        head: Head,
        action: Action,
        stable: Version,
        *,
        operator: str,
        key: tuple[str, Ed25519PrivateKey],
        canary: Canary | None = None,
        bundle: Bundle | None = None,
        note: str = "",
    ) -> Step:
        """Sign the step after `head` and store it. Raises ConflictError where another one was stored meanwhile."""
        previous = link_of(head.past.signed if head.past is not None else None)
        step = Step(head.next_number, action, stable, operator, round(self._clock(), 3), previous, canary, note)
        if canary is not None and canary.agents and bundle is not None:
            both = {bundle.digest: bundle, stable.digest: await self.bundle(stable)}
            check_by_agent(VerifiedRelease(step, both))
        bundles = {} if bundle is None else {bundle.digest: bundle.text}
        if not await self._store.add(sign(step, *key), bundles):
            raise ConflictError(
                f"somebody else published step {step.number} meanwhile; see `interlock policy history`, then try again"
            )
        return step

    async def previous(self, head: Head) -> Version:
        """Return the last stable version before the one in force that was another policy. Raises PolicyError."""
        now = head.step
        for one in await self.history():
            if now is not None and one.step is not None and one.step.stable.digest != now.stable.digest:
                return one.step.stable
        raise PolicyError("there is no other version to go back to; see `interlock policy history`")

    async def canary(self, head: Head, wanted: str, version: Version) -> Canary:
        """Return the canary that `wanted` asks for: `10%` of the replicas, or `agents=GLOB`. Raises PolicyError."""
        if wanted.startswith("agents="):
            globs = tuple(glob for glob in wanted.removeprefix("agents=").split(",") if glob)
            if not globs:
                raise PolicyError("--canary agents= names no agent; write agents=NAME or agents=GLOB")
            return Canary(version, agents=globs)
        match = _SHARE.fullmatch(wanted)
        if match is None or not 0 < float(match[1]) < 100:
            raise PolicyError(f"--canary {wanted!r}: write a share of the replicas such as 10%, or agents=GLOB")
        return Canary(version, _chosen(await self._store.replicas(SEEN_SECONDS), float(match[1]) / 100, head))


def _chosen(replicas: Sequence[ReplicaState], share: float, head: Head) -> tuple[str, ...]:
    """Return which replicas take part: at least one, never all, and other ones for the next canary."""
    names = [one.replica for one in replicas]
    if len(names) < 2:
        raise PolicyError(
            f"a canary by share needs two replicas that follow pushed policies, and there are {len(names)}; "
            "use --canary agents=GLOB, or push without a canary"
        )
    names.sort(key=lambda name: hashlib.sha256(f"{head.next_number} {name}".encode()).digest())
    return tuple(sorted(names[: min(len(names) - 1, math.ceil(share * len(names)))]))
