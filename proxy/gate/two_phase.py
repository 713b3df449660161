"""Two-phase execution: a dangerous tool is called as a proposal first, which runs nothing, and then as its one commit.

Raises PhaseError for what is refused and StoreUnavailableError without the store; the request gate makes refusals of
both. How a commit ended is stored in the background: no client waits for that.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.ids import new_id
from proxy.core.model import Answer, Call, JsonObject, Message
from proxy.core.proposals import COMMITTABLE, Commit, Consumed, Proposal, ProposalStore, RunningCommit, State, Terms
from proxy.errors import PhaseError, SamplerError, StoreUnavailableError
from proxy.gate.hold import HeldCalls, HoldTimes
from proxy.gate.refusal import CallState, sentence
from proxy.gate.task_calls import TaskCalls
from proxy.twophase import tokens
from proxy.twophase.commit import (
    INPUT_REQUIRED,
    NO_TICKET,
    Checked,
    Ticket,
    check_call,
    check_terms,
    hash_question,
    split_ticket,
)
from proxy.twophase.hashing import NotExactError
from proxy.twophase.propose import (
    NO_EVIDENCE,
    Evidence,
    Plan,
    Sampler,
    answer_not_required,
    answer_proposal,
    approve_standing,
    describe,
    draft,
    exact_hash,
    split_evidence,
    waiting_notes,
)
from proxy.twophase.scoring import Score, score
from proxy.twophase.standing import argument_parts, like_key
from proxy.wire.body import SingleMessage
from proxy.wire.mcp import TOOLS_CALL, parse_tool_call
from proxy.wire.refusal_messages import AUDIT_META

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.approvals import StandingApproval
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.tool_catalog import ToolCatalog
    from proxy.twophase.listing import Phase
    from proxy.twophase.tokens import KeyRing

log = structlog.get_logger("interlock.two_phase")

PROPOSAL_LIMIT: Final = 1 << 18  # bytes of a message that proposes or commits
# Outcomes that say how a commit ended. Any other, such as a connection that broke, leaves open whether the call ran.
KNOWN: Final = frozenset({"done", "tool_error", "error", "input_required", "task", "withheld", "not_forwarded"})
# A nonce outlives its token by this much, so that no clock within bounds lets a token be used again.
GRACE_SECONDS: Final = 3600.0
SWEEP_SECONDS: Final = 60.0
_RETRIES: Final = (0.1, 0.5, 2.0, 5.0)
# How long the answer to a server's question waits for the outcome `input_required`, which is stored in the background.
_WAITS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True)
class PhaseCall:
    """A call of one of a tool's phases: the message as the tool itself would get it, and what came beside."""

    phase: Phase
    message: Message
    evidence: Evidence = NO_EVIDENCE
    ticket: Ticket = NO_TICKET


class TwoPhase:
    """Proposes and commits. One per process; use from one event loop."""

    def __init__(
        self,
        *,
        store: ProposalStore,
        ring: Callable[[], KeyRing],
        catalog: ToolCatalog,
        sampler: Sampler | None = None,
        clock: Callable[[], float] = time.time,
        limit: int = PROPOSAL_LIMIT,
        hold: HoldTimes | None = None,
        console_url: str | None = None,
    ) -> None:
        self._store = store
        self._ring = ring
        self._catalog = catalog
        self._sampler = sampler
        self._clock = clock
        self._limit = limit
        self._console_url = console_url
        self.tasks = TaskCalls(self, store, clock)
        self.held = HeldCalls(self, store, times=hold or HoldTimes(), clock=clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def read(self, message: Message, state: CallState) -> PhaseCall | None:
        """Parse a call of a phase, and make `state.call` one of its tool; None where the call is of a tool itself.

        Raises PhaseError `proposal_too_large` before anything else is done, and `bad_proposal` for what is not of
        the form that the phase's schema says.
        """
        called = state.call
        assert called is not None
        assert called.tool is not None
        found = self._catalog.phase_of(state.context, called.tool, called.arguments)
        if found is None:
            return None
        phase, tool = found
        state.phase, state.called_as = phase, called.tool
        # From here on an event names the tool that is meant, and holds no token and no prompt of the caller's.
        state.call = replace(called, tool=tool, arguments=None)
        unpacked = state.reading.unpacked if isinstance(state.reading, SingleMessage) else 0
        phase_call = self._parse(message, phase, tool, max(state.length, unpacked))
        meant, hints = parse_tool_call(phase_call.message), self._catalog.hints(called.server, tool)
        assert meant is not None
        state.call = Call(
            TOOLS_CALL, called.server, called.agent, tool, meant.arguments, hints, identity=called.identity
        )
        return phase_call

    def _parse(self, message: Message, phase: Phase, tool: str, size: int) -> PhaseCall:
        """Part a call of a phase into the call of its tool, with that one's own arguments, and what is for us."""
        self._check_size(message, size)
        called, params = parse_tool_call(message), message.params
        assert called is not None
        if phase == "propose":
            if params.get("task") is not None:
                raise PhaseError("bad_proposal", "a proposal is answered at once and cannot be a task")
            own, evidence = split_evidence(called.arguments)
            return PhaseCall(phase, _renamed(message, tool, own), evidence=evidence)
        answers = any(params.get(name) is not None for name in ("inputResponses", "requestState"))
        question = hash_question(params.get("requestState")) if answers else None
        own, ticket = split_ticket(called.arguments, question=question)
        return PhaseCall(phase, _renamed(message, tool, own), ticket=ticket)

    def _check_size(self, message: Message, size: int) -> None:
        if size > self._limit:
            raise PhaseError("proposal_too_large", f"the message has {size} bytes; at most {self._limit} are taken")
        if message.id is None:
            raise PhaseError("bad_proposal", "without an id it could not be answered")

    def how_to_propose(self, state: CallState) -> str:
        """Say how a tool that was called directly is called instead."""
        assert state.decision is not None
        assert state.call is not None
        name = self._catalog.names(state.context, state.call.tool or "").propose
        said = f"Rule {state.decision.rule}: {sentence(state.decision.message)} " if state.decision.message else ""
        return f"{said}Call {name!r} with the same arguments; its answer says how to go on."

    async def propose(self, phase_call: PhaseCall, state: CallState, recorder: EventRecorder) -> Answer:
        """Answer a proposal, once it is stored and recorded; the server gets nothing of it."""
        assert state.call is not None
        assert state.decision is not None
        tool, terms = state.call.tool or "", state.decision.terms
        if terms is None:
            result = answer_not_required(tool)
        else:
            plan = self._plan(phase_call.evidence, state, terms, recorder)
            proposal = await self._propose(plan)
            commit_name = self._catalog.names(state.context, tool).commit
            arguments = state.call.arguments or {}
            page, now = self.page(proposal), self._clock()
            result = answer_proposal(proposal, arguments, commit_name, self._ring(), now, page)
            state.proposal_id = proposal.proposal_id
            recorder.phased(state, "proposed", describe(proposal))
        state.recorded_reason = f"proposal_{result['structuredContent']['status']}"
        await recorder.decided(state)
        answered = {**result, "_meta": self.audit_meta(state)}
        return Answer(({"jsonrpc": "2.0", "id": phase_call.message.id, "result": answered},))

    async def open(self, state: CallState, recorder: EventRecorder) -> Proposal:
        """Return the proposal of a call that nobody proposed: the one that waits for it already, or a new one."""
        assert state.decision is not None
        assert state.decision.terms is not None
        return await self._propose(self._plan(NO_EVIDENCE, state, state.decision.terms, recorder))

    def check_size(self, message: Message, state: CallState) -> None:
        """Raise PhaseError where a call is too large to be proposed, or has no id to be answered by."""
        unpacked = state.reading.unpacked if isinstance(state.reading, SingleMessage) else 0
        self._check_size(message, max(state.length, unpacked))

    def ring(self) -> KeyRing:
        return self._ring()

    def page(self, proposal: Proposal) -> str | None:
        """Return where operators decide on a proposal. The address holds no credential: whoever opens it logs in."""
        return f"{self._console_url}/approvals/{proposal.proposal_id}" if self._console_url else None

    def why_pending(self, proposal: Proposal) -> str:
        """Say that a call waits, for the model and for the user."""
        notes = waiting_notes(proposal, self.page(proposal), self._clock())
        return f"proposal {proposal.proposal_id} waits. Tell the user: {notes['user']}"

    @staticmethod
    def audit_meta(state: CallState) -> JsonObject:
        return {AUDIT_META: {"audit_id": state.call_id}}

    def _plan(self, evidence: Evidence, state: CallState, terms: Terms, recorder: EventRecorder) -> Plan:
        assert state.call is not None
        assert state.decision is not None
        prompt = recorder.masked(evidence.prompt)
        return Plan(
            call=state.call,
            terms=terms,
            evidence=evidence,
            arguments=recorder.masked(state.call.arguments),
            prompt=prompt if isinstance(prompt, str) else None,
            description=self._catalog.description(state.call.server, state.call.tool or ""),
            policy_version=state.decision.policy_version,
            call_id=state.call_id,
            parts=_parts(state.call, self._ring()) if terms.approval == "human" or terms.review else {},
        )

    async def _propose(self, plan: Plan) -> Proposal:
        """Store a proposal of `plan`, or return the one of the same call that an operator decides or decided on."""
        call, terms = plan.call, plan.terms
        digest = exact_hash(call.arguments)
        if terms.approval == "human" or terms.review:
            waiting = await self._store.awaited(call.server, call.tool or "", call.agent, digest, self._clock())
            if waiting is not None:
                return waiting
        made = await self._score(plan)
        now = self._clock()
        proposal = draft(plan, digest, made, new_id(), now)
        if proposal.state is State.PENDING and (standing := await self._standing(proposal)) is not None:
            proposal = approve_standing(proposal, standing, now)
        return await self._store.propose(proposal, now)

    async def _standing(self, proposal: Proposal) -> StandingApproval | None:
        """Use up one call of a standing approval that fits a proposal, where there is one."""
        # Where several people approve each call, none is approved in advance.
        if proposal.people > 1:
            return None
        now, store, p = self._clock(), self._store.standing, proposal
        for standing in await store.live(p.server, p.tool, p.principal, p.rule, now):
            if standing.like_key == like_key(p.parts, standing.vary):
                used = await store.use(standing.standing_id, p.call_id or p.proposal_id, now)
                if used is not None:
                    return used
        return None

    async def _score(self, plan: Plan) -> Score:
        baseline = await self._store.baseline(plan.call.server, plan.call.tool or "")
        candidates, why = await self._candidates(plan)
        prompt_hash = baseline.prompt_hash if baseline else None
        weights, threshold = plan.terms.weights, plan.terms.block_threshold
        return score(candidates, plan.evidence.prompt, prompt_hash, weights, threshold, no_candidates=why)

    async def _candidates(self, plan: Plan) -> tuple[Sequence[str] | None, str]:
        """Return two outputs to compare, or none and why."""
        if plan.evidence.candidates:
            return plan.evidence.candidates, ""
        if self._sampler is None:
            return None, "no candidate outputs were given"
        try:
            tool = plan.call.tool or ""
            return await self._sampler.sample(tool, plan.description, plan.arguments, plan.prompt), ""
        except SamplerError as error:
            return None, str(error)

    async def check(self, call: Call, ticket: Ticket) -> Checked:
        """Check a commit's token against its call, using nothing up.

        Raises PhaseError with the first of these that holds: `bad_signature`, `expired`,
        `unknown_proposal`, `args_hash_mismatch`; and StoreUnavailableError.
        """
        token = tokens.read(ticket.token, self._ring())
        begun = await self._store.commit(token.nonce) if ticket.question is not None else None
        # A call that was begun in time may go on after its token has expired: people take long to answer a question.
        if begun is None:
            tokens.check_time(token, self._clock())
        if token.proposal_id != ticket.proposal_id:
            raise PhaseError("unknown_proposal", "the token is of another proposal than proposal_id names")
        proposal = await self._store.proposal(token.proposal_id)
        if proposal is None or proposal.nonce != token.nonce:
            raise PhaseError("unknown_proposal", "there is no proposal of this id")
        if proposal.state not in COMMITTABLE and proposal.state is not State.COMMITTED:
            raise PhaseError("unknown_proposal", f"the proposal is {proposal.state}")
        check_call(token, proposal, call)
        if ticket.question is not None and begun is None:
            raise PhaseError("bad_proposal", "it answers a question that the server has not asked")
        return Checked(token, proposal, begun, ticket.question)

    async def commit(self, checked: Checked, state: CallState, recorder: EventRecorder) -> None:
        """Use a commit's token up. Raises PhaseError for everybody but the first, and StoreUnavailableError."""
        # From here on the call is made, or ends as not forwarded.
        assert state.decision is not None
        proposal = checked.proposal
        state.proposal_id = proposal.proposal_id
        check_terms(proposal, state.decision.terms)
        self._loop = asyncio.get_running_loop()
        running = RunningCommit(checked.token.nonce, state.call_id, proposal.proposal_id, state.task_id)
        try:
            await self._consume(checked, state.call_id)
        except PhaseError:
            raise
        except BaseException:
            # A store that breaks off may have used the token up all the same. The call is not made either way.
            self.ended(running, "not_forwarded")
            raise
        state.commit = running
        state.recorded_reason = "proposal_committed"
        standing = {"standing_id": proposal.standing_id} if proposal.standing_id else {}
        recorder.phased(state, "committed", {"operator": proposal.operator, **standing})

    async def _consume(self, checked: Checked, attempt_id: str) -> None:
        """Consume the token, once in all replicas. Raises PhaseError `nonce_replay`; rejected: `unknown_proposal`."""
        if checked.begun is not None:
            await self._resume(checked.begun, attempt_id, checked.question or "")
            return
        token, now = checked.token, self._clock()
        ours = Commit(
            proposal_id=token.proposal_id,
            nonce=token.nonce,
            attempt_id=attempt_id,
            at=now,
            expires_at=token.expires_at,
            token_id=token.token_id,
        )
        consumed = await self._store.consume(ours)
        if consumed is Consumed.UNKNOWN:
            raise PhaseError("unknown_proposal", "the proposal was withdrawn")
        if consumed is not Consumed.OURS:
            raise PhaseError("nonce_replay", "the token was used before")

    async def _resume(self, begun: Commit, attempt_id: str, question: str) -> None:
        """Continue a commit that the server answered with a question, once for each question."""
        commit: Commit | None = begun
        for seconds in _WAITS:
            if commit is None or commit.outcome is not None:
                break
            await asyncio.sleep(seconds)
            commit = await self._store.commit(begun.nonce)
        resumed = commit is not None and commit.outcome == INPUT_REQUIRED
        if not resumed or not await self._store.resume(begun.nonce, attempt_id, question):
            raise PhaseError("nonce_replay", "the token was used before, and the server has not asked this since")

    def ended(self, commit: RunningCommit, outcome: str, answer: JsonObject | None = None) -> None:
        """Store how a commit ended, by the `answer` that the client gets, in the background. Safe in any thread."""
        assert self._loop is not None
        result = (answer or {}).get("result")
        question = None
        if outcome == INPUT_REQUIRED and isinstance(result, dict):
            question = hash_question(result.get("requestState"))
        known = outcome if outcome in KNOWN else "unknown"

        def start() -> None:
            task = asyncio.ensure_future(self._end(commit, known, question))
            self._ending.add(task)  # the event loop itself holds a task only weakly
            task.add_done_callback(self._ending.discard)

        self._loop.call_soon_threadsafe(start)

    async def _end(self, commit: RunningCommit, outcome: str, question: str | None) -> None:
        for pause in (*_RETRIES, None):
            try:
                await self._store.end(commit.nonce, commit.attempt_id, outcome, self._clock(), question)
            except StoreUnavailableError as error:
                if pause is None:
                    log.exception("the outcome of a commit is not stored", attempt=commit.attempt_id, error=str(error))
                    return
                await asyncio.sleep(pause)
            else:
                return

    async def settle(self, seconds: float = 5.0) -> None:
        """Wait, for at most so long, until every outcome reported so far is stored."""
        await asyncio.sleep(0)  # those that other threads reported are started first
        if self._ending:
            await asyncio.wait(tuple(self._ending), timeout=seconds)

    async def sweep_forever(
        self, store: ProposalStore | None = None, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Sweep expired rows, every minute where it is `wanted`, until cancelled; by `store` where one is given."""
        self._loop = asyncio.get_running_loop()  # a commit may end here that another worker began
        while True:
            try:
                if wanted():
                    await (store or self._store).sweep(self._clock(), GRACE_SECONDS)
            except StoreUnavailableError as error:
                log.warning("expired proposals are not swept", error=str(error))
            await asyncio.sleep(SWEEP_SECONDS)

    async def close(self) -> None:
        """Wait for what is being stored, and close the store."""
        await self.settle()
        await self._store.close()


def _parts(call: Call, ring: KeyRing) -> dict[str, str]:
    try:
        return argument_parts(call.arguments, ring.current)
    except NotExactError as error:
        raise PhaseError("inexact_value", str(error)) from error


def _renamed(message: Message, tool: str, arguments: JsonObject | None) -> Message:
    """Return the message with the tool's own name and arguments."""
    params = {**message.params, "name": tool}
    if "arguments" in params:
        params["arguments"] = arguments
    return replace(message, value={**message.value, "params": params})
