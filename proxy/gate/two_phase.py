"""The two-phase part of the gate's order: from a call of a phase to its answer, or to the one commit.

Transport-free. Raises PhaseError for what is refused and StoreUnavailableError without the store;
the gate makes refusals of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.core.model import Answer
from proxy.gate.refusal import sentence
from proxy.twophase.commit import INPUT_REQUIRED, hash_question
from proxy.twophase.propose import Plan, describe
from proxy.wire.refusal_messages import AUDIT_META

if TYPE_CHECKING:
    from proxy.core.model import JsonObject, Message
    from proxy.core.proposals import Running, Terms
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.phases import Asked, Phases
    from proxy.gate.refusal import CallState
    from proxy.gate.tool_catalog import ToolCatalog
    from proxy.twophase.commit import Checked


class TwoSteps:
    """Takes the calls of phases. One per gate."""

    def __init__(self, phases: Phases, catalog: ToolCatalog, recorder: EventRecorder) -> None:
        self._phases = phases
        self._catalog = catalog
        self._recorder = recorder

    def read(self, message: Message, state: CallState) -> Asked | None:
        """Take a call of a phase apart; None where the call is of a tool itself. Raises PhaseError."""
        assert state.call is not None
        if state.call.tool is None:
            return None
        found = self._catalog.phase_of(state.context, state.call.tool, state.call.arguments)
        if found is None:
            return None
        state.phase, state.called_as = found[0], state.call.tool
        state.call = replace(state.call, tool=found[1], arguments=None)
        size = max(state.length, getattr(state.reading, "unpacked", 0))
        return self._phases.read(message, *found, size)

    def way_in(self, state: CallState) -> str:
        """Say how a tool that was called directly is called instead."""
        assert state.decision is not None
        assert state.call is not None
        name = self._catalog.names(state.context, state.call.tool or "").propose
        said = f"Rule {state.decision.rule}: {sentence(state.decision.message)} " if state.decision.message else ""
        return f"{said}Call {name!r} with the same arguments; its answer says how to go on."

    async def check(self, asked: Asked, state: CallState) -> Checked | None:
        """Check a commit's token, using nothing up; None for a proposal."""
        assert state.call is not None
        return await self._phases.check(state.call, asked) if asked.phase == "commit" else None

    async def propose(self, asked: Asked, state: CallState) -> Answer:
        """Answer a proposal, once it is recorded; the server hears nothing of it."""
        assert state.call is not None
        assert state.decision is not None
        tool, terms, message_id = state.call.tool or "", state.decision.terms, asked.message.id
        assert message_id is not None
        if terms is None:
            result = self._phases.not_required(tool)
        else:
            plan = self._plan(asked, state, terms)
            proposal, result = await self._phases.propose(plan, self._catalog.names(state.context, tool).commit)
            state.proposal_id = proposal.proposal_id
            self._recorder.phased(state, "proposed", describe(proposal))
        state.told = f"proposal_{result['structuredContent']['status']}"
        await self._recorder.decided(state)
        told = {"_meta": {AUDIT_META: {"audit_id": state.call_id}}}
        return Answer(({"jsonrpc": "2.0", "id": message_id, "result": {**result, **told}},))

    def _plan(self, asked: Asked, state: CallState, terms: Terms) -> Plan:
        assert state.call is not None
        assert state.decision is not None
        prompt = self._recorder.masked(asked.evidence.prompt)
        return Plan(
            call=state.call,
            terms=terms,
            evidence=asked.evidence,
            arguments=self._recorder.masked(state.call.arguments),
            prompt=prompt if isinstance(prompt, str) else None,
            description=self._catalog.description(state.call.server, state.call.tool or ""),
            policy_version=state.decision.policy_version,
            call_id=state.call_id,
        )

    async def commit(self, checked: Checked, state: CallState) -> None:
        """Use a commit's token up: from here on the call is made, or ends as not forwarded."""
        assert state.decision is not None
        state.proposal_id = checked.proposal.proposal_id
        state.commit = await self._phases.consume(checked, state.decision.terms, state.call_id)
        state.told = "proposal_committed"
        self._recorder.phased(state, "committed", {"operator": checked.proposal.operator})

    def ended(self, commit: Running, outcome: str, answer: JsonObject | None = None) -> None:
        """Keep how a commit ended, by the `answer` that the client gets."""
        result = (answer or {}).get("result")
        question = None
        if outcome == INPUT_REQUIRED and isinstance(result, dict):
            question = hash_question(result.get("requestState"))
        self._phases.ended(commit, outcome, question)
