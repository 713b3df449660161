"""Has other services asked about a call, where rules say so, and puts their answers into it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.core.external import Asked, ExternalAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.external import Ask, ExternalDecisions
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.gate import ReaderThreads
    from proxy.gate.refusal import CallState


class NobodyToAsk:
    """Stands where the settings have no services: whatever asks one is refused."""

    async def ask(self, asks: Sequence[Ask], _asked: Asked) -> Mapping[Ask, ExternalAnswer]:
        return {ask: ExternalAnswer("external_unavailable", "the settings name no services") for ask in asks}


class ExternalGate:
    """Asks, and keeps what was said for the call's event."""

    def __init__(self, services: ExternalDecisions | None, recorder: EventRecorder, threads: ReaderThreads) -> None:
        self._services = services or NobodyToAsk()
        self._recorder = recorder
        self._threads = threads

    async def answer(self, state: CallState) -> None:
        """Ask what the decision on a call wants to know; the call has the answers then."""
        call, decision = state.call, state.decision
        assert call is not None
        assert decision is not None
        masks = any(ask.arguments == "masked" for ask in decision.asks)
        masked = await self._threads.run(state.size, self._recorder.masked, call.arguments) if masks else None
        answers = await self._services.ask(decision.asks, Asked(call, state.context, state.call_id, masked))
        # Whoever says nothing has not said yes.
        complete = {
            ask: answers.get(ask) or ExternalAnswer("external_unavailable", "no answer") for ask in decision.asks
        }
        state.call = replace(call, answers=complete)
        # What a service says may quote what it was sent.
        state.external = [answer.data(ask) for ask, answer in complete.items()]
