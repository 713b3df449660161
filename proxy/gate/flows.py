"""The gate's part in flows: what a result brings is stored before it is passed on; what goes out is compared with it.

Where the store does not answer, nothing passes that a flow is about: neither the call nor the labelled result.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from proxy.core.flows import Mark
from proxy.core.model import Call, Context, Decision, InFlightCall, JsonObject, Outcome
from proxy.core.proposals import Terms
from proxy.flows.fingerprint import Fingerprinter, Kept, normalise
from proxy.flows.history import AgentHistory, Found, pack
from proxy.flows.matching import match_flow
from proxy.flows.outgoing import Outgoing, keep, look, read_outgoing
from proxy.flows.readings import read_value
from proxy.gate.event_recorder import TRACE_PARENT
from proxy.gate.flow_memory import OWN_BYTES, OwnWords
from proxy.gate.flow_recall import FlowRecall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.core.flows import FlowStore
    from proxy.core.interfaces import Redactor
    from proxy.core.model import Json
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.refusal import CallState
    from proxy.policy.flows import Applying, CompiledFlow, CompiledFlows, CompiledLabel

log = structlog.get_logger("interlock.flows")

DENIED: Final = "flow_denied"
TWO_PHASE: Final = "two_phase_required"
_STRICTNESS: Final = {"report": 0, "two_phase": 1, "deny": 2}
_MAX_NOTED: Final = 10_000


class FlowPolicy(Protocol):
    """What flows need of a policy."""

    @property
    def flows(self) -> CompiledFlows | None:
        """The labels and flows; None where there is nothing to do."""

    def applying(self, call: Call) -> Applying:
        """Return what applies to a call."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A flow that stops something, and the mark that it stops it for."""

    flow: CompiledFlow
    found: Found

    @property
    def why(self) -> str:
        """Say what data came from where, for the agent and the operator."""
        rule, mark = self.flow.rule, self.found.mark
        said = f"Rule {rule.id}: {rule.description.removesuffix('.')}. " if rule.description else f"Rule {rule.id}. "
        place = f"tool {mark.tool!r} of {mark.server}" if mark.tool else mark.server
        held = "It holds data" if self.found.runs or self.found.values else "It comes after data"
        return f"{said}{held} labelled {', '.join(mark.labels)} from {place} (audit id {mark.call_id})."


@dataclass(slots=True)
class FlowCheck:
    """What is known of one message while flows are judged."""

    applying: Applying
    history: AgentHistory | None
    tails: Mapping[str, bytes]
    looked: dict[str, Outgoing] = field(default_factory=dict[str, Outgoing])
    hit: Hit | None = None
    noted: tuple[Hit, ...] = ()  # hits that only report, or are in shadow mode

    @property
    def source(self) -> JsonObject | None:
        """Where the data came from that is stopped."""
        return self.hit.found.mark.source() if self.hit is not None else None

    def detail(self) -> JsonObject:
        """Return what an event says: which flows stopped or noticed something, and where the data came from."""
        hits = [*([self.hit] if self.hit is not None else ()), *self.noted]
        told = [{"flow": hit.flow.rule.id, **hit.found.mark.source()} for hit in hits]
        return {"flows": told} if told else {}


class FlowGate:
    """Judges what goes out by what came in. One for each worker."""

    def __init__(
        self,
        policy: Callable[[], FlowPolicy],
        store: FlowStore,
        key: bytes,
        redactor: Redactor,
        recorder: EventRecorder,
        clock: Callable[[], float],
    ) -> None:
        self.policy = policy
        self._store = store
        self._printer = Fingerprinter(key)
        self._redactor = redactor
        self._recorder = recorder
        self._clock = clock
        self._recall = FlowRecall(store, key, self._printer.key_id, clock)
        self._own = OwnWords()
        self._noted: dict[str, tuple[str, ...]] = {}

    # What goes out.

    async def recall(self, state: CallState) -> None:
        """Read what the agent did and read before, where that matters to its call. Raises StoreUnavailableError."""
        policy, call = self.policy(), state.call
        if policy.flows is None or call is None:
            return
        applying = policy.applying(call)
        state.flows = check = FlowCheck(applying, None, {})
        if applying.asks or applying.flows:
            check.history, check.tails = await self._recall.load(call.agent)
            if applying.asks:
                state.call = replace(call, history=check.history)

    def judge(self, state: CallState, decision: Decision) -> Decision:
        """Return the decision on a call once flows are considered."""
        check, call = state.flows, state.call
        assert call is not None
        if check is None or not check.applying.flows or check.history is None or not check.history.marks:
            return decision
        hits = [hit for flow in check.applying.flows if (hit := self._judge_call(flow, call, state, check)) is not None]
        return self._weigh(hits, check, decision) if hits else decision

    def _judge_call(self, flow: CompiledFlow, call: Call, state: CallState, check: FlowCheck) -> Hit | None:
        if flow.spares(call):
            return None
        key = "\0".join(flow.rule.to.arguments or ())

        def outgoing() -> Outgoing:
            if key not in check.looked:
                reading = read_outgoing(flow.outgoing(call))
                check.looked[key] = look(self._printer, reading.texts, check.tails, complete=reading.complete)
            return check.looked[key]

        return self._hit(flow, check.history, state.context, trace_of(state.context, state), outgoing)

    def _hit(
        self,
        flow: CompiledFlow,
        history: AgentHistory | None,
        context: Context,
        trace: str | None,
        outgoing: Callable[[], Outgoing],
    ) -> Hit | None:
        """Return whether a flow stops what goes out; `outgoing` is made only where there is something to look for."""
        assert history is not None
        rule = flow.rule
        live = [mark for mark in history.live(flow.labels, rule.within) if _in_scope(mark, rule.scope, context, trace)]
        found = match_flow(flow, history, live, outgoing)
        return Hit(flow, found) if found is not None else None

    def _weigh(self, hits: Sequence[Hit], check: FlowCheck, decision: Decision) -> Decision:
        """Return the decision that the strictest of the flows makes of `decision`."""
        shadow = tuple(hit.flow.rule.id for hit in hits if hit.flow.rule.mode == "shadow")
        live = [hit for hit in hits if hit.flow.rule.mode != "shadow"]
        check.noted = tuple(hit for hit in hits if hit.flow.rule.mode == "shadow" or hit.flow.rule.action == "report")
        matched = tuple(hit.flow.rule.id for hit in live)
        decision = replace(decision, matched=(*decision.matched, *matched), shadow=(*decision.shadow, *shadow))
        stopping = [hit for hit in live if hit.flow.rule.action != "report"]
        if not stopping:
            return decision
        hit = max(stopping, key=lambda each: _STRICTNESS[each.flow.rule.action])
        rule, check.hit = hit.flow.rule, hit
        if rule.action == "two_phase":
            return _by_people(decision, hit)
        return replace(
            decision, outcome=Outcome.DENY, reason=DENIED, rule=rule.id, message=hit.why, severity=rule.severity
        )

    async def settle(self, state: CallState) -> None:
        """Remember a call that passes, for those that come after it. Raises StoreUnavailableError.

        Stored are the steps that rules ask about, and the ends of what was sent; before the call is forwarded.
        """
        check, call = state.flows, state.call
        assert call is not None
        if check is None:
            return
        agent = call.agent
        steps = check.applying.steps_of(call)
        if steps:
            trace, context, now = trace_of(state.context, state), state.context, self._clock()
            await self._store.add(
                [_mark(context, call, state.call_id, (step.label,), now, step.lasts, trace=trace) for step in steps]
            )
        await self._recall.remember_sent(agent, list(check.looked.values()))
        if check.history is not None and not check.history.has_prints:
            self._own.add(agent, normalise(read_value(call.arguments).whole[:OWN_BYTES]))

    # What comes in.

    def note(self, context: Context, call_id: str | None, labels: Iterable[str]) -> None:
        """Add labels to what a call brings, before its result is passed to `bring`; for detectors of other parts.

        What belongs to no call (a page, a tool list) has the labels that rules give it by host or server.
        """
        if call_id is None:
            return
        known = self._noted.get(call_id, ())
        self._noted[call_id] = tuple(dict.fromkeys((*known, *labels)))
        log.info("labelled", call_id=call_id, labels=list(labels), server=context.server)
        while len(self._noted) > _MAX_NOTED:
            self._noted.pop(next(iter(self._noted)))

    def bring(self, in_flight: InFlightCall, value: Any) -> tuple[Mark, ...]:
        """Return the marks of what a server sent for a call. Store them before it is passed on."""
        policy = self.policy()
        flows = policy.flows
        if flows is None or not isinstance(value, dict):
            return ()
        call = in_flight.call
        labels = policy.applying(call).labels if call.method else flows.unmatched(call.server, call.agent)
        brought = {name: part for name, part in value.items() if name in ("result", "error", "params")}
        return self._marks(flows, in_flight.context, call, in_flight.call_id, labels, brought)

    def labels_result(self, in_flight: InFlightCall) -> bool:
        """Return whether what a server sends for a call may have labels that a flow asks about."""
        policy, call = self.policy(), in_flight.call
        if (flows := policy.flows) is None:
            return False
        rules = policy.applying(call).labels if call.method else flows.unmatched(call.server, call.agent)
        return in_flight.call_id in self._noted or any(flows.lasts(rule.labels) > 0 for rule in rules)

    def _marks(
        self,
        flows: CompiledFlows,
        context: Context,
        call: Call,
        call_id: str,
        rules: Sequence[CompiledLabel],
        brought: Json,
    ) -> tuple[Mark, ...]:
        by_kind: dict[str, list[str]] = {}
        for rule in rules:
            if rule.rule.detectors is None or self._redactor.mask(brought, rule.rule.detectors)[1]:
                by_kind.setdefault(rule.rule.only, []).extend(rule.labels)
        if self._noted and (noted := self._noted.pop(call_id, ())):
            by_kind.setdefault("all", []).extend(noted)
        marks = []
        for only, words in by_kind.items():
            labels, now = tuple(dict.fromkeys(words)), self._clock()
            if (lasts := flows.lasts(labels)) > 0:
                kept = self._keep(call.agent, brought, flows, only == "prose") if flows.by_content(labels) else None
                trace = trace_id(context.traceparent)
                mark = _mark(context, call, call_id, labels, now, lasts, trace=trace)
                marks.append(mark if kept is None else self._with_prints(mark, kept))
        return tuple(marks)

    def _keep(self, agent: str, brought: Json, flows: CompiledFlows, prose: bool) -> Kept:  # noqa: FBT001
        kept = keep(self._printer, brought, flows.value_kinds, prose=prose)
        return self._own.without(agent, kept, self._printer)

    def _with_prints(self, mark: Mark, kept: Kept) -> Mark:
        runs, values = pack(kept, self._printer.key_id)
        return replace(mark, shingles=runs, values=values, complete=kept.complete)

    async def store(self, marks: Sequence[Mark]) -> None:
        """Return once marks are stored for every worker and replica. Raises StoreUnavailableError."""
        if marks:
            await self._store.add(marks)
            for mark in marks:
                self._recorder.labelled(mark)

    # Plain requests.

    def request_flows(self, context: Context) -> Applying | None:
        """Return what applies to a plain request, where anything does."""
        flows = self.policy().flows
        if flows is None:
            return None
        applying = flows.for_request(context.server, context.principal.agent)
        return applying if applying.flows or applying.labels else None

    async def judge_request(self, context: Context, applying: Applying, sent: Json, *, complete: bool) -> FlowCheck:
        """Return which flow stops a plain request, if one does. Raises StoreUnavailableError."""
        agent = context.principal.agent
        check = FlowCheck(applying, None, {})
        if not applying.flows:
            return check
        check.history, check.tails = await self._recall.load(agent)

        def outgoing() -> Outgoing:
            if "" not in check.looked:
                reading = read_outgoing(sent)
                whole = complete and reading.complete
                check.looked[""] = look(self._printer, reading.texts, check.tails, complete=whole)
            return check.looked[""]

        trace = trace_id(context.traceparent)
        found = [self._hit(flow, check.history, context, trace, outgoing) for flow in applying.flows]
        hits = [hit for hit in found if hit is not None]
        self._weigh(hits, check, Decision(Outcome.ALLOW, "default_allow"))
        if check.hit is None:
            await self._recall.remember_sent(agent, list(check.looked.values()))
        return check

    def labels_pages(self, context: Context) -> bool:
        """Return whether policy gives labels to what a plain request brings."""
        applying = self.request_flows(context)
        return applying is not None and bool(applying.labels)

    def page_marks(self, context: Context, body: Json | None, call_id: str) -> tuple[Mark, ...]:
        """Return the marks of a page that was fetched; without a body, marks that cover none of it."""
        flows, applying = self.policy().flows, self.request_flows(context)
        if flows is None or applying is None:
            return ()
        call = Call("", context.server, context.principal.agent)
        marks = self._marks(flows, context, call, call_id, applying.labels, "" if body is None else body)
        if body is not None:
            return marks
        return tuple(replace(mark, complete=False) if flows.by_content(mark.labels) else mark for mark in marks)


def _mark(
    context: Context,
    call: Call,
    call_id: str,
    labels: tuple[str, ...],
    now: float,
    lasts: float,
    *,
    trace: str | None,
) -> Mark:
    return Mark(
        agent=call.agent,
        call_id=call_id,
        server=call.server,
        tool=call.tool,
        labels=labels,
        at=now,
        expires_at=now + lasts,
        session=context.session,
        trace=trace,
    )


def _in_scope(mark: Mark, scope: str, context: Context, trace: str | None) -> bool:
    """Return whether a mark counts for a message: of another session or trace it does not, where both are known."""
    if scope == "session" and mark.server == context.server and mark.session is not None:
        return context.session is None or mark.session == context.session
    if scope == "trace" and mark.trace is not None and trace is not None:
        return mark.trace == trace
    return True


def _by_people(decision: Decision, hit: Hit) -> Decision:
    """Return a decision that people have to approve, on the stricter of its terms and the flow's."""
    rule = hit.flow.rule
    ours = Terms(rule.id, approval="human", how=rule.approval.how, people=rule.approval.people)
    terms = decision.terms
    if terms is not None:
        ours = replace(terms, approval="human", review=False, people=max(terms.people, ours.people))
    return replace(decision, outcome=Outcome.TWO_PHASE, reason=TWO_PHASE, rule=rule.id, message=hit.why, terms=ours)


def trace_id(traceparent: str | None) -> str | None:
    """Return the id of the trace that a W3C trace context names."""
    fits = traceparent is not None and TRACE_PARENT.fullmatch(traceparent)
    return traceparent.split("-")[1] if fits and traceparent is not None else None


def trace_of(context: Context, state: CallState) -> str | None:
    """Return the id of the trace that a message came in."""
    meta = state.message.params.get("_meta") if state.message is not None else None
    said = meta.get("traceparent") if isinstance(meta, dict) else None
    return trace_id(said if isinstance(said, str) else None) or trace_id(context.traceparent)
