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
    from proxy.gate.event_recorder import Journal
    from proxy.gate.phases import Asked, Phases
    from proxy.gate.refusal import Step
    from proxy.gate.tool_catalog import Catalogue
    from proxy.twophase.commit import Checked


class TwoSteps:
    """Takes the calls of phases. One per gate."""

    def __init__(self, phases: Phases, catalogue: Catalogue, journal: Journal) -> None:
        self._phases = phases
        self._catalogue = catalogue
        self._journal = journal

    def read(self, message: Message, step: Step) -> Asked | None:
        """Take a call of a phase apart; None where the call is of a tool itself. Raises PhaseError."""
        assert step.call is not None
        if step.call.tool is None:
            return None
        found = self._catalogue.phase_of(step.context, step.call.tool, step.call.arguments)
        if found is None:
            return None
        step.phase, step.called_as = found[0], step.call.tool
        step.call = replace(step.call, tool=found[1], arguments=None)
        size = max(step.length, getattr(step.reading, "unpacked", 0))
        return self._phases.read(message, *found, size)

    def way_in(self, step: Step) -> str:
        """Say how a tool that was called directly is called instead."""
        assert step.decision is not None
        assert step.call is not None
        name = self._catalogue.names(step.context, step.call.tool or "").propose
        said = f"Rule {step.decision.rule}: {sentence(step.decision.message)} " if step.decision.message else ""
        return f"{said}Call {name!r} with the same arguments; its answer says how to go on."

    async def check(self, asked: Asked, step: Step) -> Checked | None:
        """Check a commit's token, using nothing up; None for a proposal."""
        assert step.call is not None
        return await self._phases.check(step.call, asked) if asked.phase == "commit" else None

    async def propose(self, asked: Asked, step: Step) -> Answer:
        """Answer a proposal, once it is recorded; the server hears nothing of it."""
        assert step.call is not None
        assert step.decision is not None
        tool, terms, message_id = step.call.tool or "", step.decision.terms, asked.message.id
        assert message_id is not None
        if terms is None:
            result = self._phases.not_required(tool)
        else:
            plan = self._plan(asked, step, terms)
            proposal, result = await self._phases.propose(plan, self._catalogue.names(step.context, tool).commit)
            step.proposal_id = proposal.proposal_id
            self._journal.phased(step, "proposed", describe(proposal))
        step.told = f"proposal_{result['structuredContent']['status']}"
        await self._journal.decided(step)
        told = {"_meta": {AUDIT_META: {"audit_id": step.call_id}}}
        return Answer(({"jsonrpc": "2.0", "id": message_id, "result": {**result, **told}},))

    def _plan(self, asked: Asked, step: Step, terms: Terms) -> Plan:
        assert step.call is not None
        assert step.decision is not None
        prompt = self._journal.masked(asked.evidence.prompt)
        return Plan(
            call=step.call,
            terms=terms,
            evidence=asked.evidence,
            arguments=self._journal.masked(step.call.arguments),
            prompt=prompt if isinstance(prompt, str) else None,
            description=self._catalogue.description(step.call.server, step.call.tool or ""),
            policy_version=step.decision.policy_version,
            call_id=step.call_id,
        )

    async def commit(self, checked: Checked, step: Step) -> None:
        """Use a commit's token up: from here on the call is made, or ends as not forwarded."""
        assert step.decision is not None
        step.proposal_id = checked.proposal.proposal_id
        step.commit = await self._phases.consume(checked, step.decision.terms, step.call_id)
        step.told = "proposal_committed"
        self._journal.phased(step, "committed", {"operator": checked.proposal.operator})

    def ended(self, commit: Running, outcome: str, answer: JsonObject | None = None) -> None:
        """Keep how a commit ended, by the `answer` that the client gets."""
        result = (answer or {}).get("result")
        question = None
        if outcome == INPUT_REQUIRED and isinstance(result, dict):
            question = hash_question(result.get("requestState"))
        self._phases.ended(commit, outcome, question)
