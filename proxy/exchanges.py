"""Calls under way: forwarded, and not answered yet. Bounded, in memory, one of it for each process."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from proxy.model import Message
from proxy.wire.jsonrpc import is_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.model import Context, Exchange, JsonObject, MessageId

MAX_OPEN = 10_000


class Exchanges:
    """Finds the call that an answer belongs to."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._open: OrderedDict[str, Exchange] = OrderedDict()
        self._by_session: OrderedDict[tuple[str, str, MessageId], Exchange] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, exchange: Exchange) -> None:
        """Take a call that is being forwarded."""
        self._open[exchange.call_id] = exchange
        if key := _session_key(exchange):
            self._by_session.pop(key, None)
            self._by_session[key] = exchange
            while len(self._by_session) > 2 * self._limit:
                self._by_session.popitem(last=False)

    def surplus(self) -> Iterator[Exchange]:
        """Give the oldest calls past the bound; the caller ends them."""
        while len(self._open) > self._limit:
            yield next(iter(self._open.values()))

    def remaining(self) -> Iterator[Exchange]:
        """Give every call; the caller ends them."""
        while self._open:
            yield next(iter(self._open.values()))

    def of_session(self, context: Context) -> list[Exchange]:
        """Give the calls of this session that are under way."""
        if context.session is None:
            return []
        ours = (context.server, context.session)
        return [each for each in self._open.values() if (each.context.server, each.context.session) == ours]

    def is_open(self, context: Context, message_id: object) -> bool:
        """Say whether a call of this session and id is under way."""
        found = self.find(context, message_id)
        return found is not None and not found.closed

    def find(self, context: Context, message_id: object) -> Exchange | None:
        """Give the call of this session that a response of this id answers.

        Calls that have ended are remembered for a while: a stream may be replayed.
        """
        if context.session is None or not is_id(message_id):
            return None
        return self._by_session.get((context.server, context.session, message_id))  # type: ignore[arg-type]

    def end(self, exchange: Exchange) -> bool:
        """Take a call out; say whether it was still under way."""
        if exchange.closed:
            return False
        exchange.closed = True
        self._open.pop(exchange.call_id, None)
        return True


def without_arguments(message: Message) -> Message:
    """Give what the way back needs of a message: not the arguments, which may be large."""
    params = message.params
    wanted = params.get("notifications")
    kept: JsonObject = {name: True for name in ("cursor", "task") if params.get(name) is not None}
    if isinstance(wanted, dict):
        kept["notifications"] = {"toolsListChanged": wanted.get("toolsListChanged") is True}
    return Message(message.kind, {"params": kept}, message.method, message.id)


def _session_key(exchange: Exchange) -> tuple[str, str, MessageId] | None:
    session, message_id = exchange.context.session, exchange.message.id
    if session is None or message_id is None:
        return None
    return exchange.context.server, session, message_id
