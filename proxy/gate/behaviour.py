"""Judges what a local server is observed to do, and bars the answers that policy withholds for it.

An act that only guesses tie to a call bars every call that it may belong to, and one outside of any call the next
answer: an answer passes only where nothing that a rule withholds may be behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

import structlog

from proxy.core import reasons
from proxy.core.model import Call, Denial
from proxy.gate.refusal import sendable, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from proxy.core.acts import Act, ActPhase, ActRule
    from proxy.core.model import Context, InFlightCall, JsonObject
    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.behaviour")

REASON = "observed_behaviour"
INCOMPLETE = "trace_incomplete"
MAX_TOLD = 4096


class ActRules(Protocol):
    """The rules of a policy on acts; false where there are none."""

    def __bool__(self) -> bool: ...

    def holds_answers(self, server: str, /) -> bool:
        """Return whether some answer of a server may have to be withheld."""
        ...

    def judge(self, act: Act, phase: ActPhase, call: Call, /) -> Iterator[ActRule]:
        """Yield the rules that an act in a call meets."""
        ...


class Behaviour:
    """What policy makes of one server's acts. `on_deny` is called where a rule wants the server ended."""

    def __init__(
        self, gate: Gate, context: Context, rules: Callable[[], ActRules], on_deny: Callable[[str], None]
    ) -> None:
        self._recorder = gate.recorder
        self._in_flight = gate.in_flight
        self._context = context
        self._rules = rules
        self._on_deny = on_deny
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._owed: dict[str, ActRule] = {}

    @property
    def watches(self) -> bool:
        """Whether acts are to be judged at all."""
        return bool(self._rules())

    @property
    def holds_answers(self) -> bool:
        """Whether an answer may only pass once everything is known that the server did before it."""
        rules = self._rules()
        return bool(rules) and rules.holds_answers(self._context.server)

    @property
    def bars_messages(self) -> bool:
        """Whether an answer under way is withheld, so that no other message may carry what it would have said."""
        return any(call.barred is not None for call in self._in_flight.under_way())

    def seen(self, act: Act, phase: ActPhase, calls: Sequence[InFlightCall], detail: JsonObject) -> None:
        """Take an act of the calls that it belongs to, or may belong to; of none, where it was outside of calls."""
        for call in calls:
            for met in self._rules().judge(act, phase, call.call):
                self._meet(met, act, call, detail)
        if not calls:
            nobody = Call("", self._context.server, self._context.principal.agent)
            for met in self._rules().judge(act, phase, nobody):
                self._meet(met, act, None, {**detail, "phase": phase})

    def bar_owed(self) -> None:
        """Bar the calls under way for what was done outside of any call: one of them is answered next."""
        calls = self._in_flight.under_way() if self._owed else []
        for met in self._owed.values() if calls else ():
            for call in calls:
                call.barred = call.barred or _denial(call, met)
        if calls:
            self._owed.clear()

    def bar_all(self, why: str) -> None:
        """Bar every call under way: what the server did in them cannot be known."""
        for call in self._in_flight.under_way():
            if call.barred is None:
                call.barred = _denial(call, None)
                self._recorder.behaviour(call.context, call, INCOMPLETE, None, {"why": why}, withholds=True)

    def _meet(self, met: ActRule, act: Act, call: InFlightCall | None, detail: JsonObject) -> None:
        enforced = met.outcome != "tell" and not met.shadow
        withholds = enforced and call is not None and not call.closed
        # Done after its call was answered, or in none: what comes of it may be in the next answer.
        if enforced and (call is None or call.closed):
            self._owed[met.rule] = met
        elif call is not None and withholds and call.barred is None:
            call.barred = _denial(call, met)
        # Once for each call: a server may do the same thing a thousand times.
        key = (call.call_id if call is not None else "", met.rule)
        if key not in self._told:
            self._told[key] = None
            if len(self._told) > MAX_TOLD:
                self._told.popitem(last=False)
            shown = {"action": met.outcome, **detail, "seen": act.shown()}
            context = call.context if call is not None else self._context
            self._recorder.behaviour(context, call, REASON, met, shown, withholds=withholds)
        if enforced and met.outcome == "deny":
            self._on_deny(met.rule)


def denial_of(call: InFlightCall) -> Denial:
    """Return the refusal of a call whose server was ended for what it did, in this call or in another."""
    if call.barred is not None:
        return call.barred
    text = f"Interlock ({REASON}): the server was ended for what it did. Audit id: {call.call_id}."
    return Denial(REASON, sendable(text), None, call.call_id)


def _denial(call: InFlightCall, met: ActRule | None) -> Denial:
    """Return the refusal in place of a call's answer; `met` is None where the trace is incomplete."""
    reason = REASON if met is not None else INCOMPLETE
    said = sentence(met.message) if met is not None and met.message else reasons.REASONS[reason].meaning
    rule = f"Rule {met.rule}: " if met is not None else ""
    text = f"Interlock ({reason}): {call.message.method!r} was executed, and its result is withheld. {rule}{said}"
    text = f"{text} {reasons.REASONS[reason].advice} Audit id: {call.call_id}."
    return Denial(reason, sendable(text), met.rule if met is not None else None, call.call_id)
