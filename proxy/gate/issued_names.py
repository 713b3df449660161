"""What servers issue and clients send back: task ids, with the redactions of the calls that made them, and cursors.

Bounded, in memory, and shared with the other workers where there are several. What was forgotten is treated as
unknown: a task's results are then masked by every rule that may apply to its server.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.ids import new_id
from proxy.core.model import Kind, Message
from proxy.errors import SharedCallsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.core.interfaces import SharedCalls
    from proxy.core.model import Context, InFlightCall, Redaction

log = structlog.get_logger("interlock.in_flight")

MAX_NAMES: Final = 20_000
TASK, OPAQUE = "task", "opaque"


class IssuedNames:
    """Names of each server that this process, or another worker, has seen."""

    def __init__(self, shared_calls: SharedCalls | None = None, limit: int = MAX_NAMES) -> None:
        self._shared_calls = shared_calls
        self._limit = limit
        self._known: OrderedDict[tuple[str, str, str], tuple[Redaction, ...]] = OrderedDict()

    def add_task(self, in_flight: InFlightCall, task_id: str) -> None:
        """Learn that a call has become a task: its results are masked as the call's."""
        # A server that gives an id twice must not take rules away from the task that had it first.
        known = self.task(in_flight.context, task_id) or ()
        self._add(TASK, task_id, in_flight, union(known, in_flight.decision.redactions))

    def task(self, context: Context, task_id: str) -> tuple[Redaction, ...] | None:
        """Return the redactions of the call that made a task of this server; None where no such task is known."""
        return self._find(TASK, task_id, context)

    def add_opaque(self, in_flight: InFlightCall, value: str) -> None:
        """Learn an opaque value that a server gave to its client."""
        self._add(OPAQUE, value, in_flight, ())

    def is_issued(self, context: Context, value: str) -> bool:
        """Return whether this server gave this opaque value to a client before."""
        return self._find(OPAQUE, value, context) is not None

    def _add(self, kind: str, name: str, in_flight: InFlightCall, redactions: tuple[Redaction, ...]) -> None:
        key = kind, in_flight.context.server, _digest(name)
        if self._known.get(key) == redactions:
            return
        self._known.pop(key, None)
        self._known[key] = redactions
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
        if self._shared_calls is not None:
            try:
                self._shared_calls.post(_as_call(kind, name, in_flight, redactions))
            except SharedCallsUnavailableError as error:
                log.warning("other workers do not know of a task", error=str(error))

    def _find(self, kind: str, name: str, context: Context) -> tuple[Redaction, ...] | None:
        key = kind, context.server, _digest(name)
        found = self._known.get(key)
        if found is not None or self._shared_calls is None:
            return found
        try:
            call = self._shared_calls.find(_place(kind, context), _digest(name))
        except SharedCallsUnavailableError as error:
            log.warning("a task of another worker cannot be found", error=str(error))
            return None
        return call.decision.redactions if call is not None else None


def _as_call(kind: str, name: str, in_flight: InFlightCall, redactions: tuple[Redaction, ...]) -> InFlightCall:
    """Return an entry for the table of shared calls."""
    message = Message(Kind.REQUEST, {}, None, _digest(name))
    decision, context = replace(in_flight.decision, redactions=redactions), _place(kind, in_flight.context)
    return replace(in_flight, call_id=new_id(), context=context, message=message, decision=decision, closed=True)


def _place(kind: str, context: Context) -> Context:
    # No client can make a call to a server of such a name, so none can put an entry of its own there.
    return replace(context, server=f"{kind}\n{context.server}", session="")


def union(first: Iterable[Redaction], second: Iterable[Redaction]) -> tuple[Redaction, ...]:
    """Return the redactions of both, each once."""
    return tuple(dict.fromkeys((*first, *second)))


def _digest(name: str) -> str:
    # Servers choose the names, and their length.
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
