"""Calls that wait for people without a change of tools: the call is held, or the client is sent to a page.

A call waits on its proposal, which is in the store: when the client hangs up, or the proxy restarts, the proposal
stays, and the same call made again waits on it. Its nonce lets one call through, however many wait on it.
Raises PhaseError for what is refused and StoreUnavailableError without the store, and runs nothing then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from proxy.core.model import Answer, CallerLink, Context, JsonObject, Message, MessageId
from proxy.core.proposals import COMMITTABLE, Proposal, ProposalStore, State
from proxy.errors import PhaseError
from proxy.gate.in_flight import LEGACY
from proxy.gate.task_calls import ASKED, wants_task
from proxy.twophase.commit import Checked, hash_question
from proxy.twophase.propose import describe, exact_hash, make_token, timestamp, waiting_notes
from proxy.twophase.request_state import RequestState, is_ours, open_state, seal
from proxy.twophase.review import standing
from proxy.wire.mcp import CLIENT_CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.core.model import Call
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.refusal import CallState
    from proxy.gate.two_phase import TwoPhase

# Each waiting call holds a connection and asks the store once a second.
MAX_HELD: Final = 512
MAX_HELD_OF_AGENT: Final = 32
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
_ANSWERS: Final = ("inputResponses", "requestState")


@dataclass(slots=True)
class _Waiting:
    """One call that waits; `cancelled` is set when the client takes it back."""

    message_id: MessageId | None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class HoldTimes:
    """How long calls are held, in seconds; a rule's own `hold_seconds` counts instead of both."""

    silent: float = 50.0
    """Where the client hears nothing meanwhile, or has not asked to: below the 60 seconds after which some give up."""
    with_progress: float = 600.0
    """Where it asked for progress, and gets it."""
    keep_alive: float = 5.0
    """Between two signs of life."""


class HeldCalls:
    """Holds calls until people have decided. One per process; use from one event loop."""

    def __init__(
        self, two_phase: TwoPhase, store: ProposalStore, *, times: HoldTimes, clock: Callable[[], float]
    ) -> None:
        self._two_phase = two_phase
        self._store = store
        self._times = times
        self._clock = clock
        self._stopping = asyncio.Event()
        self._agents: Counter[str] = Counter()
        self._waiting: dict[tuple[str, str | None], list[_Waiting]] = {}

    def __len__(self) -> int:
        return self._agents.total()

    def stop(self) -> None:
        """Refuse the calls that wait, and those to come; their proposals stay."""
        self._stopping.set()

    def cancel(self, context: Context, message_id: object) -> None:
        """Take a call of a session back: it is not made, even if somebody approves it."""
        for one in self._waiting.get((context.server, context.session), ()):
            if one.message_id == message_id and type(one.message_id) is type(message_id):
                one.cancelled = True

    async def wait(
        self, message: Message, state: CallState, recorder: EventRecorder, link: CallerLink
    ) -> Checked | Answer:
        """Return a commit of the call, once people have approved it; or what the client is asked to do meanwhile."""
        assert state.call is not None
        self._two_phase.check_size(message, state)
        digest, params = exact_hash(state.call.arguments), message.params
        if is_ours(params.get("requestState")):
            proposal = await self._returned(params, state.call, digest)
        else:
            if (resumed := await self._resumed(params, state.call, digest)) is not None:
                return resumed
            proposal = await self._two_phase.open(state, recorder)
        state.proposal_id = proposal.proposal_id
        recorder.phased(state, "proposed", describe(proposal))
        if _how(state) == "task" and wants_task(params):
            return self._two_phase.tasks.create(message, state, proposal)
        asks = _how(state) == "elicit" and _takes_urls(params) and self._two_phase.page(proposal) is not None
        if asks and proposal.state is State.PENDING and not is_ours(params.get("requestState")):
            return self._ask(message, state, proposal)
        try:
            decided = await self._until_decided(proposal, message, state, link)
        except _TimeOverError:
            if asks:
                return self._ask(message, state, proposal)
            raise PhaseError("approval_pending", self._two_phase.why_pending(proposal)) from None
        return self._checked(decided)

    async def _returned(self, params: JsonObject, call: Call, digest: str) -> Proposal:
        """Return the proposal that the client was asked about; only the very call that it is of may go on."""
        sealed = open_state(params.get("requestState"), self._two_phase.ring())
        if sealed != RequestState(sealed.proposal_id, call.agent, call.server, call.tool or "", digest):
            raise PhaseError("args_hash_mismatch", "the call differs from the one that the requestState is of")
        proposal = await self._store.proposal(sealed.proposal_id)
        if proposal is None:
            raise PhaseError("unknown_proposal", "there is no proposal of this id any more")
        responses = params.get("inputResponses")
        answer = responses.get(ASKED) if isinstance(responses, dict) else None
        if proposal.state is State.PENDING and not (isinstance(answer, dict) and answer.get("action") == "accept"):
            raise PhaseError("approval_pending", self._two_phase.why_pending(proposal))
        return proposal

    async def _resumed(self, params: JsonObject, call: Call, digest: str) -> Checked | None:
        """Return the commit that a client's answer to the server's own question continues; None for a new call."""
        if all(params.get(name) is None for name in _ANSWERS):
            return None
        question = hash_question(params.get("requestState"))
        proposal = await self._store.asked(call.server, call.tool or "", call.agent, digest, question)
        begun = await self._store.commit(proposal.nonce) if proposal is not None else None
        if proposal is None or begun is None:
            return None
        return Checked(make_token(proposal, self._clock()), proposal, begun, question)

    def _ask(self, message: Message, state: CallState, proposal: Proposal) -> Answer:
        """Return the answer that sends the client's user to the page of a proposal."""
        sealed = RequestState(
            proposal.proposal_id, proposal.principal, proposal.server, proposal.tool, proposal.arguments_hash
        )
        notes = waiting_notes(proposal, self._two_phase.page(proposal), self._clock())
        request = {
            "method": "elicitation/create",
            "params": {"mode": "url", "url": self._two_phase.page(proposal), "message": notes["user"]},
        }
        result = {
            "resultType": "input_required",
            "inputRequests": {ASKED: request},
            "requestState": seal(sealed, self._two_phase.ring()),
            "_meta": self._two_phase.audit_meta(state),
        }
        return Answer(({"jsonrpc": "2.0", "id": message.id, "result": result},))

    async def _until_decided(
        self, proposal: Proposal, message: Message, state: CallState, link: CallerLink
    ) -> Proposal:
        """Return the proposal as soon as it waits no longer. Raises PhaseError where its call may not wait on."""
        # Decided already, it takes nobody's place.
        if (stands := standing(proposal, self._clock())) is not State.PENDING and not link.gone():
            return replace(proposal, state=stands)
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        progress = _Progress(message, link, loop.time(), self._times.keep_alive)
        bound = progress.total = self._bound(state, asked=progress.is_wanted)
        over = loop.time() + bound
        with self._place(state, message) as waiting:
            while True:
                found = await self._store.proposal(proposal.proposal_id)
                if waiting.cancelled or link.gone():
                    raise PhaseError("caller_gone", "the caller does not wait for it any more; its proposal stays")
                if found is None:
                    raise PhaseError("unknown_proposal", "the proposal is not there any more")
                if (stands := standing(found, self._clock())) is not State.PENDING:
                    return replace(found, state=stands)
                if self._stopping.is_set():
                    raise PhaseError("stopping", "the proxy stops; the proposal stays, so call it again")
                if (left := over - loop.time()) <= 0:
                    raise _TimeOverError
                await progress.send(loop.time())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), min(pause, left, self._times.keep_alive))
                pause = min(LONGEST_PAUSE, pause * 1.5)

    def _bound(self, state: CallState, *, asked: bool) -> float:
        # The legacy transport sends one POST after the other, and clients give each a few seconds: holding one would
        # hold all. So its call is refused as pending, and finds its proposal when it is made again.
        if state.context.transport == LEGACY:
            return 0.0
        terms = state.decision.terms if state.decision else None
        own = terms.hold_seconds if terms else None
        if own is not None:
            return own
        # Only progress resets the timeout of a request, and only where the client asked for it.
        return self._times.with_progress if asked else self._times.silent

    @contextlib.contextmanager
    def _place(self, state: CallState, message: Message) -> Iterator[_Waiting]:
        """Count a call that waits, and drop it at the end. Raises PhaseError past the bounds."""
        agent = state.context.principal.agent
        if self._agents[agent] >= MAX_HELD_OF_AGENT or len(self) >= MAX_HELD:
            raise PhaseError("too_many_waiting", f"{self._agents[agent]} calls of {agent} wait already")
        key, one = (state.context.server, state.context.session), _Waiting(message.id)
        self._agents[agent] += 1
        if state.context.session is not None:
            self._waiting.setdefault(key, []).append(one)
        try:
            yield one
        finally:
            self._agents[agent] -= 1
            if not self._agents[agent]:
                del self._agents[agent]
            if one in (others := self._waiting.get(key, [])):
                others.remove(one)
            if not others:
                self._waiting.pop(key, None)

    def _checked(self, proposal: Proposal) -> Checked:
        """Return the commit of a proposal that was decided. Raises PhaseError where it may not be carried out."""
        if proposal.state in COMMITTABLE:
            return Checked(make_token(proposal, self._clock()), proposal)
        if proposal.state is State.REJECTED:
            by = f"{proposal.operator} rejected it" if proposal.operator else "it was rejected"
            said = f": {proposal.operator_reason}" if proposal.operator_reason else ""
            raise PhaseError("approval_rejected", f"{by}{said}")
        if proposal.state is State.COMMITTED:
            raise PhaseError("nonce_replay", "the approval was for one call, and that one was made")
        if proposal.state is State.BLOCKED:
            raise PhaseError("low_integrity", f"it scores {proposal.composite_score}, and nobody may approve that")
        raise PhaseError("approval_pending", f"nobody decided before {timestamp(proposal.expires_at)}")


class _TimeOverError(Exception):
    """Nobody has decided within the time that a call is held."""


class _Progress:
    """Tells a client that asked for it that its call still waits: with that, some wait longer."""

    def __init__(self, message: Message, link: CallerLink, began: float, interval: float) -> None:
        meta = message.params.get("_meta")
        self._token = meta.get("progressToken") if isinstance(meta, dict) else None
        self._link = link
        self._began = self._last = began
        self._interval = interval
        self.total = 0.0

    @property
    def is_wanted(self) -> bool:
        is_token = isinstance(self._token, str | int) and not isinstance(self._token, bool)
        return is_token and self._link.takes_progress

    async def send(self, now: float) -> None:
        if not self.is_wanted or now < self._last + self._interval:
            return
        self._last = now
        params = {
            "progressToken": self._token,
            "progress": round(now - self._began, 1),
            "total": self.total,
            "message": "Waiting for an operator to approve it.",
        }
        await self._link.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def without_our_answers(message: Message) -> Message:
    """Return the message as the server gets it: without the state that we gave out, and the answer to us."""
    params = message.params
    if not is_ours(params.get("requestState")):
        return message
    own = {name: value for name, value in params.items() if name not in _ANSWERS}
    return replace(message, value={**message.value, "params": own})


def _how(state: CallState) -> str | None:
    terms = state.decision.terms if state.decision else None
    return terms.how if terms else None


def _takes_urls(params: JsonObject) -> bool:
    """Return whether the client says of itself, as revision 2026-07-28 has it, that it can show a user a page."""
    meta: Any = params.get("_meta")
    for name in (CLIENT_CAPABILITIES, "elicitation"):
        meta = meta.get(name) if isinstance(meta, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get("url"), dict)
