"""Two-phase execution as the gate sees it: which phase a call is, what a proposal is answered, when a commit may run.

Transport-free. How a commit ended is kept in the background; `settle` waits for that.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.ids import new_id
from proxy.core.proposals import Running
from proxy.errors import PhaseError, StoreUnavailableError
from proxy.twophase.commit import NO_TICKET, Checked, Committer, Ticket, check_terms, hash_question, split_ticket
from proxy.twophase.propose import NO_EVIDENCE, Evidence, Plan, Proposer, Sampler, split_evidence
from proxy.wire.mcp import parse_tool_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import Call, JsonObject, Message
    from proxy.core.proposals import Proposal, ProposalStore, Terms
    from proxy.twophase.listing import Phase
    from proxy.twophase.tokens import KeyRing

log = structlog.get_logger("interlock.phases")

PROPOSAL_LIMIT: Final = 1 << 18
"""Bytes of a message that proposes or commits."""
# Outcomes that say how a commit ended; any other way to end leaves it unknown.
KNOWN: Final = frozenset({"done", "tool_error", "error", "input_required", "task", "withheld", "not_forwarded"})
GRACE_SECONDS: Final = 3600.0
SWEEP_SECONDS: Final = 60.0
_RETRIES: Final = (0.1, 0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of one of a tool's phases: the message as the tool itself would get it, and what came beside."""

    phase: Phase
    name: str
    message: Message
    evidence: Evidence = NO_EVIDENCE
    ticket: Ticket = NO_TICKET


class Phases:
    """Proposes and commits. One per process; use from one event loop."""

    def __init__(
        self,
        *,
        store: ProposalStore,
        ring: Callable[[], KeyRing],
        sampler: Sampler | None = None,
        clock: Callable[[], float] = time.time,
        limit: int = PROPOSAL_LIMIT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limit = limit
        self._proposer = Proposer(store=store, ring=ring, new_id=new_id, clock=clock, sampler=sampler)
        self._committer = Committer(store=store, ring=ring, clock=clock, wait=asyncio.sleep)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def read(self, message: Message, phase: Phase, tool: str, size: int) -> Asked:
        """Take a call of a phase of `tool` apart.

        Raises PhaseError `proposal_too_large` before anything else is done, and
        `bad_proposal` for what is not of the form that the phase's schema says.
        """
        if size > self._limit:
            raise PhaseError("proposal_too_large", f"the message has {size} bytes; at most {self._limit} are taken")
        if message.id is None:
            raise PhaseError("bad_proposal", "without an id it could not be answered")
        called = parse_tool_call(message)
        assert called is not None
        if phase == "propose":
            if message.params.get("task") is not None:
                raise PhaseError("bad_proposal", "a proposal is answered at once and cannot be a task")
            own, evidence = split_evidence(called.arguments)
            return Asked(phase, called.tool, _renamed(message, tool, own), evidence=evidence)
        params = message.params
        answers = any(params.get(name) is not None for name in ("inputResponses", "requestState"))
        question = hash_question(params.get("requestState")) if answers else None
        own, ticket = split_ticket(called.arguments, question=question)
        return Asked(phase, called.tool, _renamed(message, tool, own), ticket=ticket)

    async def propose(self, plan: Plan, commit_name: str) -> tuple[Proposal, JsonObject]:
        """Keep a proposal; return it, and the tool result that answers it.

        Raises PhaseError and StoreUnavailableError.
        """
        proposal, answer = await self._proposer.propose(plan)
        return proposal, _result(answer, _ADVICE[answer["status"]].format(commit=commit_name, reason=proposal.reason))

    def not_required(self, tool: str) -> JsonObject:
        """Return the tool result that answers a proposal of a call that may be made directly."""
        advice = _ADVICE["not_required"].format(tool=tool)
        return _result({"status": "not_required", "tool": tool}, advice)

    async def check(self, call: Call, asked: Asked) -> Checked:
        """Check a commit's token, using nothing up. Raises PhaseError and StoreUnavailableError."""
        return await self._committer.check(call, asked.ticket)

    async def consume(self, checked: Checked, terms: Terms | None, attempt_id: str) -> Running:
        """Use a commit's token up. Raises PhaseError and StoreUnavailableError.

        A store that breaks off may have used it up all the same: then it is kept as not forwarded.
        """
        check_terms(checked.proposal, terms)
        self._loop = asyncio.get_running_loop()
        running = Running(checked.token.nonce, attempt_id, checked.proposal.proposal_id)
        try:
            await self._committer.consume(checked, attempt_id)
        except PhaseError:
            raise
        except BaseException:
            self.ended(running, "not_forwarded")
            raise
        return running

    def ended(self, running: Running, outcome: str, question: str | None = None) -> None:
        """Keep how a commit ended, in the background. May be called from any thread."""
        assert self._loop is not None
        told = outcome if outcome in KNOWN else "unknown"
        self._loop.call_soon_threadsafe(self._start_ending, running, told, question)

    def _start_ending(self, running: Running, outcome: str, question: str | None) -> None:
        task = asyncio.ensure_future(self._end(running, outcome, question))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, running: Running, outcome: str, question: str | None) -> None:
        for pause in (*_RETRIES, None):
            try:
                await self._store.end(running.nonce, running.attempt_id, outcome, self._clock(), question)
            except StoreUnavailableError as error:
                if pause is None:
                    log.exception("a commit's outcome is not kept", attempt=running.attempt_id, error=str(error))
                    return
                await asyncio.sleep(pause)
            else:
                return

    async def settle(self, seconds: float = 5.0) -> None:
        """Wait, for so long, until every outcome told so far is kept."""
        await asyncio.sleep(0)  # those told by other threads are started first
        if self._ending:
            await asyncio.wait(tuple(self._ending), timeout=seconds)

    async def sweep_forever(self) -> None:
        """Sweep expired rows, every minute, until cancelled."""
        self._loop = asyncio.get_running_loop()  # a commit may end here that another worker began
        while True:
            try:
                await self._store.sweep(self._clock(), GRACE_SECONDS)
            except StoreUnavailableError as error:
                log.warning("expired proposals are not swept", error=str(error))
            await asyncio.sleep(SWEEP_SECONDS)

    async def close(self) -> None:
        """Wait for what is being kept, and let the store go."""
        await self.settle()
        await self._store.close()


def _renamed(message: Message, tool: str, arguments: JsonObject | None) -> Message:
    """Return the message with the tool's own name and arguments."""
    params = {**message.params, "name": tool}
    if "arguments" in params:
        params["arguments"] = arguments
    return replace(message, value={**message.value, "params": params})


def _result(answer: JsonObject, advice: str) -> JsonObject:
    """Return the tool result for an answer: the answer itself as text and as a structure, and what to do next."""
    return {
        "content": [{"type": "text", "text": json.dumps(answer)}, {"type": "text", "text": advice}],
        "structuredContent": answer,
        "isError": False,
        "resultType": "complete",
    }


_ADVICE: Final = {
    "not_required": "Nothing has been executed. These arguments need no proposal: call {tool!r} with them directly.",
    "allowed": "Nothing has been executed yet. To run it, call {commit!r} with exactly the same arguments, "
    "and with this proposal_id and commit_token, before expires_at. The token works once.",
    "pending": "Nothing has been executed. A person has to approve this proposal: tell the user, and later propose "
    "the same again; once it is approved, the answer has the commit_token.",
    "rejected": "Nothing has been executed. A person has rejected this proposal: do not try again, tell the user.",
    "blocked": "Nothing has been executed ({reason}). Show the draft to the user. Where the reason is no_signals, "
    "propose again with _interlock: the prompt you act on, and two candidate_outputs.",
}
