"""Calls in flight: forwarded, and not answered yet. Bounded, in memory, one collection for each process.

Where there are several workers, a call that may be answered on a stream of another worker is shared with all of them,
and ids in use are claimed among them. A shared call ends once, whichever worker sees its answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import structlog

from proxy.core.model import Call, Context, InFlightCall, JsonObject, Kind, Message, MessageId
from proxy.errors import SharedCallsUnavailableError
from proxy.wire.jsonrpc import is_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxy.core.interfaces import SharedCalls
    from proxy.gate.refusal import CallState

    type Key = tuple[str, str, MessageId]

log = structlog.get_logger("interlock.in_flight")

# A server that never answers must not fill the memory, nor one agent push out the calls of the others.
MAX_OPEN = 10_000
MAX_OF_AGENT = 2_000
LEGACY = "sse"
_WANTED = frozenset(("cursor", "task", "notifications"))


class InFlightCalls:
    """Finds the call that an answer belongs to."""

    def __init__(
        self, limit: int = MAX_OPEN, of_agent: int = MAX_OF_AGENT, shared_calls: SharedCalls | None = None
    ) -> None:
        self._limit = limit
        self._of_agent = of_agent
        self._shared_calls = shared_calls
        self._open: OrderedDict[str, InFlightCall] = OrderedDict()
        self._agents: dict[str, OrderedDict[str, InFlightCall]] = {}
        self._by_session: OrderedDict[Key, InFlightCall] = OrderedDict()
        self._claimed: dict[Key, str] = {}  # the id of the call; empty while that is decided on

    def __len__(self) -> int:
        return len(self._open)

    def claim(self, context: Context, message: Message) -> bool:
        """Claim a request's id; return False where its session has a request of that id in flight, in any worker.

        Raises SharedCallsUnavailableError where that cannot be known. Call `release` if it is not forwarded then.
        """
        key = _key(context, message.id)
        if message.kind is not Kind.REQUEST or key is None:
            return True
        if key in self._claimed or not self._claim_everywhere(context, key[2]):
            return False
        self._claimed[key] = ""
        return True

    def _claim_everywhere(self, context: Context, message_id: MessageId) -> bool:
        if self._shared_calls is None:
            return True
        # A worker that is gone may have left a call that is still answered.
        left = self._shared_calls.find(context, message_id, near=True) if context.transport == LEGACY else None
        return (left is None or left.closed) and self._shared_calls.claim(context, message_id)

    @property
    def spans_replicas(self) -> bool:
        """Whether `claim_afar` has to be asked, too."""
        return self._shared_calls is not None and self._shared_calls.spans_replicas

    async def claim_afar(self, context: Context, message: Message) -> bool:
        """Claim an id that is claimed here among all replicas; return False where another one has it.

        Raises SharedCallsUnavailableError where that cannot be known, and the answer may come to another replica.
        """
        key = _key(context, message.id)
        if self._shared_calls is None or message.kind is not Kind.REQUEST or key is None:
            return True
        try:
            return await self._shared_calls.claim_afar(context, key[2])
        except SharedCallsUnavailableError as error:
            # An answer on the request's own connection is not matched by its id: a database that is away stops no call.
            if context.transport == LEGACY:
                raise
            log.debug("an id is claimed on this machine alone", error=str(error))
            return True

    def release(self, context: Context, message: Message) -> None:
        """Release the id of a request that was not forwarded."""
        key = _key(context, message.id)
        if message.kind is Kind.REQUEST and key is not None:
            self._release(context, key, "")

    def begin(self, message: Message, state: CallState, now: float) -> tuple[InFlightCall, Iterable[InFlightCall]]:
        """Take a call that is being forwarded; return it, and the oldest calls past the bounds: the caller ends them.

        Raises SharedCallsUnavailableError where other workers have to know of it and cannot.
        """
        known, decision = state.call, state.decision
        assert known is not None
        assert decision is not None
        # Without the arguments: they may be large, there may be thousands of calls, and the response needs none.
        call = Call(known.method, known.server, known.agent, known.tool, None, known.hints, identity=known.identity)
        in_flight = InFlightCall(
            state.call_id,
            without_arguments(message),
            state.context,
            call,
            decision,
            state.started,
            now,
            commit=state.commit,
            charges=state.charges,
            traceparent=state.traceparent,
        )
        if message.kind is not Kind.REQUEST:
            return in_flight, ()
        self.add(in_flight)
        return in_flight, self.surplus(call.agent)

    def add(self, in_flight: InFlightCall) -> None:
        """Register a call whose answer is to come. Raises SharedCallsUnavailableError."""
        # One of a legacy session is shown to all workers: its answer comes on a stream that any of them may have.
        if in_flight.context.transport == LEGACY and in_flight.context.session is not None:
            self.share(in_flight)
        self._open[in_flight.call_id] = in_flight
        mine = self._agents.get(in_flight.call.agent)
        if mine is None:
            mine = self._agents[in_flight.call.agent] = OrderedDict()
        mine[in_flight.call_id] = in_flight
        if (key := _key(in_flight.context, in_flight.message.id)) is not None:
            self._claimed[key] = in_flight.call_id
            # Taken out first, so that it goes to the end: the oldest are dropped, and an id may be used again.
            self._by_session.pop(key, None)
            self._by_session[key] = in_flight
            while len(self._by_session) > 2 * self._limit:
                self._by_session.popitem(last=False)

    def share(self, in_flight: InFlightCall) -> None:
        """Share a call, and what is known of it now, with the other workers. Raises SharedCallsUnavailableError."""
        # Nothing answers a notification: it would be taken for a call that the end of its session cut short.
        if self._shared_calls is not None and in_flight.message.kind is Kind.REQUEST:
            self._shared_calls.post(in_flight)
            in_flight.shared = True

    def surplus(self, agent: str) -> Iterable[InFlightCall]:
        """Return the oldest calls past the bounds, that of the agent and that of all; the caller ends them."""
        if len(self._open) <= self._limit and len(self._agents.get(agent, ())) <= self._of_agent:
            return ()
        return self._oldest(agent)

    def _oldest(self, agent: str) -> Iterator[InFlightCall]:
        while (mine := self._agents.get(agent)) is not None and len(mine) > self._of_agent:
            yield next(iter(mine.values()))
        while len(self._open) > self._limit:
            yield next(iter(self._open.values()))

    def remaining(self) -> Iterator[InFlightCall]:
        """Return every call; the caller ends them."""
        while self._open:
            yield next(iter(self._open.values()))

    def of_session(self, context: Context) -> list[InFlightCall]:
        """Return the calls of this session that are under way, in any worker."""
        if context.session is None:
            return []
        ours = (context.server, context.session)
        mine = [each for each in self._open.values() if (each.context.server, each.context.session) == ours]
        known = {each.call_id for each in mine}
        try:
            others = self._shared_calls.of_session(context) if self._shared_calls is not None else []
        except SharedCallsUnavailableError as error:
            log.warning("the calls of other workers are unknown", error=str(error))
            others = []
        return mine + [each for each in others if each.call_id not in known]

    def find(self, context: Context, message_id: object) -> InFlightCall | None:
        """Return the call of this session that a response of this id answers, forwarded by whichever worker."""
        # Calls that have ended are remembered for a while: a client that reconnects has the stream replayed to it.
        if (key := _key(context, message_id)) is None:
            return None
        found = self._by_session.get(key)
        if found is not None or self._shared_calls is None:
            return found
        try:
            return self._shared_calls.find(context, key[2])
        except SharedCallsUnavailableError as error:
            log.warning("a call of another worker cannot be found", error=str(error))
            return None

    def end(self, in_flight: InFlightCall) -> bool:
        """Take a call out; return whether it was still under way, and nobody else has ended it."""
        if in_flight.closed:
            return False
        self._forget(in_flight)
        if not in_flight.shared or self._shared_calls is None:
            return True
        try:
            return self._shared_calls.end(in_flight.call_id)
        except SharedCallsUnavailableError as error:
            # Twice in the record is better than never: each call has its end.
            log.warning("a call may be recorded as ended twice", call_id=in_flight.call_id, error=str(error))
            return True

    def under_way(self) -> list[InFlightCall]:
        """Return every call of this process that is under way."""
        return list(self._open.values())

    def catch_up(self) -> list[InFlightCall]:
        """Drop calls that other workers saw the answers of; return them."""
        shared = [in_flight for in_flight in self._open.values() if in_flight.shared]
        if self._shared_calls is None or not shared:
            return []
        try:
            ended = self._shared_calls.ended(in_flight.call_id for in_flight in shared)
        except SharedCallsUnavailableError as error:
            log.warning("calls that other workers have ended are unknown", error=str(error))
            return []
        gone = [in_flight for in_flight in shared if in_flight.call_id in ended]
        for in_flight in gone:
            self._forget(in_flight)
        return gone

    def _forget(self, in_flight: InFlightCall) -> None:
        in_flight.closed = True
        self._open.pop(in_flight.call_id, None)
        if (mine := self._agents.get(in_flight.call.agent)) is not None:
            mine.pop(in_flight.call_id, None)
            if not mine:
                del self._agents[in_flight.call.agent]
        if (key := _key(in_flight.context, in_flight.message.id)) is not None:
            self._release(in_flight.context, key, in_flight.call_id)

    def _release(self, context: Context, key: Key, call_id: str) -> None:
        if self._claimed.get(key) == call_id:
            del self._claimed[key]
            if self._shared_calls is not None:
                self._shared_calls.release(context, key[2])


def without_arguments(message: Message) -> Message:
    """Return what the response path needs of a message."""
    params = message.value.get("params")
    kept: JsonObject = {}
    if isinstance(params, dict) and not _WANTED.isdisjoint(params):
        kept = {name: True for name in ("cursor", "task") if params.get(name) is not None}
        if isinstance(wanted := params.get("notifications"), dict):
            kept["notifications"] = {"toolsListChanged": wanted.get("toolsListChanged") is True}
    return Message(message.kind, {**envelope(message), "params": kept}, message.method, message.id)


def envelope(message: Message) -> JsonObject:
    """Return what tells a JSON-RPC message from a call in plain HTTP (`is_rest`): its answer is read otherwise."""
    return {"jsonrpc": "2.0"} if "jsonrpc" in message.value else {}


def _key(context: Context, message_id: object) -> Key | None:
    if context.session is None or not is_id(message_id):
        return None
    return context.server, context.session, message_id  # type: ignore[return-value]
