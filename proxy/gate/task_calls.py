"""Calls that wait for people as tasks of the proxy's own (revision 2025-11-25): created at once, polled, run once.

The client asks for a task with `params.task` and gets one. `tasks/get` says how its proposal stands. `tasks/result` is
the call itself: it waits as a held call does, and once people have approved it, it is made, once. So a task whose
client is gone makes no call. What becomes of a call is known by its proposal, so tasks work across workers and
restarts; its result is not kept, and can be had once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.core.model import Answer, JsonObject, Kind, Message
from proxy.core.proposals import COMMITTABLE, Proposal, State
from proxy.errors import PhaseError
from proxy.twophase import task_id
from proxy.twophase.propose import exact_hash, timestamp, waiting_notes
from proxy.twophase.request_state import RequestState, seal
from proxy.twophase.review import standing
from proxy.twophase.task_id import TaskCall
from proxy.wire.mcp import TOOLS_CALL, parse_tool_call
from proxy.wire.mcp_exchange import RELATED_TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.proposals import ProposalStore
    from proxy.gate.refusal import CallState
    from proxy.gate.two_phase import TwoPhase

GET: Final = "tasks/get"
RESULT: Final = "tasks/result"
CANCEL: Final = "tasks/cancel"
METHODS: Final = frozenset((GET, RESULT, CANCEL))
ASKED: Final = "approval"
POLL_MS: Final = 1000
REVISION: Final = "2025-11-25"  # the one whose clients ask for tasks by `params.task`
NO_SUCH_METHOD: Final = -32601
# The headers of revision 2026-07-28 that say what a body calls. A poll has those of the poll, not of the call.
_MIRRORED: Final = ("mcp-method", "mcp-name", "mcp-param-")


def is_own_task(message: Message) -> bool:
    """Return whether a message is about a task of the proxy's own."""
    return message.method in METHODS and task_id.is_ours(message.params.get("taskId"))


def wants_task(params: JsonObject) -> bool:
    """Return whether a call asks to be a task."""
    return isinstance(params.get("task"), dict)


class TaskCalls:
    """Answers for tasks of the proxy's own. Every method raises PhaseError, and StoreUnavailableError."""

    def __init__(self, two_phase: TwoPhase, store: ProposalStore, clock: Callable[[], float]) -> None:
        self._two_phase = two_phase
        self._store = store
        self._clock = clock

    def create(self, message: Message, state: CallState, proposal: Proposal) -> Answer:
        """Return the task that a call waits as."""
        params = {name: value for name, value in message.params.items() if name != "task"}
        context = state.context
        call = TaskCall(proposal.proposal_id, context.principal.agent, context.server, context.session, params)
        task = self._task(task_id.seal(call, self._two_phase.ring()), proposal, *self._status(proposal, None))
        return _answer(message, {"task": task, "_meta": self._two_phase.audit_meta(state)})

    async def take(self, message: Message, state: CallState) -> Answer | Message:
        """Return the answer to a message about a task; for its result, the call that is to be held and made."""
        own = message.params.get("taskId")
        call = task_id.open_id(own, self._two_phase.ring())
        context = state.context
        # Another agent's, or another session's, does not even exist.
        if (call.principal, call.server, call.session) != (context.principal.agent, context.server, context.session):
            raise PhaseError("unknown_proposal", "there is no such task in this session")
        if message.id is None:
            raise PhaseError("bad_proposal", "without an id it could not be answered")
        state.proposal_id = call.proposal_id
        if message.method == RESULT:
            state.task_id = str(own)
            return self._call(message, call)
        proposal = await self._store.proposal(call.proposal_id)
        if proposal is None:
            raise PhaseError("unknown_proposal", "the task is over, and its proposal is not kept any longer")
        if message.method == CANCEL:
            return _cannot_cancel(message)
        commit = await self._store.commit(proposal.nonce)
        outcome = (commit.outcome or "") if commit is not None else None
        return _answer(message, self._task(str(own), proposal, *self._status(proposal, outcome)))

    def _call(self, message: Message, call: TaskCall) -> Message:
        """Return the call of a task, as its client would make it again to wait for the approval."""
        value = {"jsonrpc": "2.0", "id": message.id, "method": TOOLS_CALL, "params": call.params}
        made = Message(Kind.REQUEST, value, TOOLS_CALL, message.id)
        called = parse_tool_call(made)
        if called is None:
            raise PhaseError("bad_proposal", "the task is not of a tool call")
        digest = exact_hash(called.arguments)
        sealed = RequestState(call.proposal_id, call.principal, call.server, called.tool, digest)
        asked = {
            "requestState": seal(sealed, self._two_phase.ring()),
            "inputResponses": {ASKED: {"action": "accept"}},
        }
        return replace(made, value={**value, "params": {**call.params, **asked}})

    def _status(self, proposal: Proposal, outcome: str | None) -> tuple[str, str]:
        """Return a task's status, and a sentence; `outcome` is that of its call: None before it is made."""
        if outcome is not None or proposal.state is State.COMMITTED:
            if not outcome:
                return "working", "The call is being made."
            return ("completed", "The call was made.") if outcome == "done" else ("failed", f"It ended: {outcome}.")
        stands = standing(proposal, self._clock())
        if stands is State.PENDING:
            notes = waiting_notes(proposal, self._two_phase.page(proposal), self._clock())
            return "working", str(notes["user"])
        if stands in COMMITTABLE:
            # Something is required of the client, and what its library does then is to ask for the result.
            return "input_required", "Approved. Ask for the result (tasks/result): that makes the call, once."
        if stands is State.REJECTED:
            why = f": {proposal.operator_reason}" if proposal.operator_reason else "."
            return "failed", f"{proposal.operator or 'An operator'} rejected it{why}"
        return "failed", "Nobody may approve it." if stands is State.BLOCKED else "Nobody approved it in time."

    def _task(self, own: str, proposal: Proposal, status: str, said: str) -> JsonObject:
        updated = proposal.operator_at or proposal.created_at
        return {
            "taskId": own,
            "status": status,
            "statusMessage": said,
            "createdAt": timestamp(proposal.created_at),
            "lastUpdatedAt": timestamp(updated),
            "ttl": max(0, round((proposal.expires_at - proposal.created_at) * 1000)),
            "pollInterval": POLL_MS,
        }


def offer_task(tool: JsonObject) -> JsonObject:
    """Return a tool of a list with the word that it may be called as a task, where its server says nothing else."""
    execution = tool.get("execution")
    said = execution if isinstance(execution, dict) else {}
    if said.get("taskSupport") in ("optional", "required"):
        return tool
    return {**tool, "execution": {**said, "taskSupport": "optional"}}


def offer_tasks(result: JsonObject) -> JsonObject:
    """Return a handshake of revision 2025-11-25 with the word that tools may be called as tasks."""
    capabilities = result.get("capabilities")
    if result.get("protocolVersion") != REVISION or not isinstance(capabilities, dict):
        return result
    return {**result, "capabilities": _with_path(capabilities, ("tasks", "requests", "tools", "call"))}


def _with_path(value: object, path: tuple[str, ...]) -> JsonObject:
    """Return an object in which this path leads to an object, with everything else as it is."""
    known = value if isinstance(value, dict) else {}
    return {**known, path[0]: _with_path(known.get(path[0]), path[1:])} if path else known


def is_mirrored(name: str) -> bool:
    """Return whether a header says what the body calls."""
    return name.lower().startswith(_MIRRORED)


def with_related_task(response: JsonObject, own: str) -> JsonObject:
    """Return the response to a call with the task that it belongs to, as the protocol asks of `tasks/result`."""
    result = response.get("result")
    if not isinstance(result, dict):
        return response
    meta = result.get("_meta")
    related = {**(meta if isinstance(meta, dict) else {}), RELATED_TASK: {"taskId": own}}
    return {**response, "result": {**result, "_meta": related}}


def _answer(message: Message, result: JsonObject) -> Answer:
    return Answer(({"jsonrpc": "2.0", "id": message.id, "result": result},))


def _cannot_cancel(message: Message) -> Answer:
    text = "Interlock: such a task cannot be cancelled. Do not ask for its result, and its call is never made."
    return Answer(({"jsonrpc": "2.0", "id": message.id, "error": {"code": NO_SUCH_METHOD, "message": text}},))
