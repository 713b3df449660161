"""Charges calls to the limits of the policy: before they are forwarded, and back if they are not.

Raises LimitError for a call that there is no room for, and StoreUnavailableError where that cannot be known: the
request gate refuses both.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.model import Decision, Outcome
from proxy.errors import LimitError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from proxy.core.interfaces import Policy
    from proxy.core.limits import Charge, Exceeded, LimitStore
    from proxy.core.model import InFlightCall
    from proxy.gate.refusal import CallState

log = structlog.get_logger("interlock.limits")

EXCEEDED: Final = "limit_exceeded"
MAINTAIN_SECONDS: Final = 5.0


class CallLimits:
    """The limits of one process; use from one event loop. Calls may end in other threads."""

    def __init__(self, store: LimitStore | None) -> None:
        """Count in `store`. Without one, every call that a limit applies to is refused: nobody could count it."""
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: set[asyncio.Future[None]] = set()

    @property
    def store(self) -> LimitStore:
        if self._store is None:
            raise StoreUnavailableError("nothing here counts what is used of limits")
        return self._store

    async def look(self, state: CallState, policy: Policy) -> None:
        """Make the decision one for people where a limit that asks them has no room for the call."""
        decision = _decided(state)
        asking = [charge for charge in _charges(state, decision) if charge.asks]
        if not asking:
            return
        if exceeded := await self.store.look(asking):
            state.decision = replace(_beyond(state, policy, exceeded), charges=decision.charges)

    async def reserve(self, state: CallState, policy: Policy, *, approved: bool) -> None:
        """Charge the call to all of its limits; one that people `approved` may go past those that ask them."""
        decision = _decided(state)
        if not decision.charges:
            return
        self._loop = asyncio.get_running_loop()
        charges: Sequence[Charge] = tuple(_charges(state, decision))
        if approved:
            charges = [replace(charge, blocks=charge.blocks and not charge.asks) for charge in charges]
        exceeded = await self._reserve(state.call_id, charges)
        if any(one.charge.blocks for one in exceeded):
            state.decision = _refusing(_beyond(state, policy, exceeded))
            state.retry_after = _retry_after(exceeded)
            state.limits = exceeded
            raise LimitError(EXCEEDED, state.decision.message)
        state.charges, state.limits = tuple(charges), exceeded
        if exceeded:
            beyond = tuple(one.charge.limit for one in exceeded)
            state.decision = replace(decision, shadow=tuple(sorted({*decision.shadow, *beyond})))

    async def _reserve(self, call_id: str, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        try:
            return await self.store.reserve(call_id, charges)
        except asyncio.CancelledError:
            # The client hung up: the store may have charged the call all the same, and it is not made.
            self.give_back(call_id, charges)
            raise

    def give_back(self, call_id: str, charges: Sequence[Charge]) -> None:
        """Take back what a call was charged that is not made, in the background."""
        if charges:
            self._later(lambda: self.store.give_back(call_id, charges))

    def ended(self, in_flight: InFlightCall) -> None:
        """Free the places of a call that has ended; one that the server got nothing of costs nothing. Safe anywhere."""
        charges, in_flight.charges = in_flight.charges, ()
        if in_flight.unsent:
            self.give_back(in_flight.call_id, charges)
        elif any(charge.kind == "concurrency" for charge in charges):
            self._later(lambda: self.store.release(in_flight.call_id, charges))

    def _later(self, work: Callable[[], Awaitable[None]]) -> None:
        def start() -> None:
            task = asyncio.ensure_future(_quietly(work))
            self._ending.add(task)  # the event loop itself holds a task only weakly
            task.add_done_callback(self._ending.discard)

        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(start)

    async def maintain_forever(self) -> None:
        """Keep the store in order, every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(MAINTAIN_SECONDS)
            try:
                await self.store.maintain()
            except StoreUnavailableError as error:
                log.warning("what is used of limits is not kept in order", error=str(error))

    async def close(self) -> None:
        """Wait a moment for what is given back, and close the store."""
        await asyncio.sleep(0)
        if self._ending:
            await asyncio.wait(tuple(self._ending), timeout=5.0)
        if self._store is not None:
            await self._store.close()


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except StoreUnavailableError as error:
        # It counts for longer than it should: that refuses more, never less.
        log.warning("a call stays charged that has ended or was not made", error=str(error))


def _decided(state: CallState) -> Decision:
    assert state.decision is not None
    return state.decision


def _charges(state: CallState, decision: Decision) -> Iterable[Charge]:
    """Return what the call is charged, with the session in the names of the budgets that are per session."""
    for charge in decision.charges:
        if charge.by_session:
            # Calls without a session share one budget: to name none must not give a fresh one each time.
            yield replace(charge, budget=json.dumps([*json.loads(charge.budget), state.context.session]))
        else:
            yield charge


def _beyond(state: CallState, policy: Policy, exceeded: Sequence[Exceeded]) -> Decision:
    assert state.call is not None
    return policy.decide_beyond(state.call, {one.charge.limit: one.used for one in exceeded})


def _refusing(decision: Decision) -> Decision:
    # Of people who could still let it pass nobody was asked: the budget was used up a moment ago. A call again asks.
    return replace(decision, outcome=Outcome.DENY, reason=EXCEEDED)


def _retry_after(exceeded: Sequence[Exceeded]) -> int | None:
    """Return after how many whole seconds there is room in every limit; None where waiting does not help."""
    times = [one.retry_after for one in exceeded if one.charge.blocks]
    known = [seconds for seconds in times if seconds is not None]
    return max(1, math.ceil(max(known))) if known and len(known) == len(times) else None
