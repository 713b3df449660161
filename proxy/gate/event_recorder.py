"""Makes audit events of what the gate does, masks them, logs them and hands them to the sink."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from proxy.core.ids import new_id
from proxy.core.model import (
    AS_RECORDED,
    UNSAID,
    AuditEvent,
    Call,
    Context,
    Decision,
    Finding,
    InFlightCall,
    Json,
    JsonObject,
    Message,
    Outcome,
    Screening,
)
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from proxy.core.acts import ActRule
    from proxy.core.flows import Mark
    from proxy.core.identity import Identity
    from proxy.core.interfaces import EventSink, Redactor
    from proxy.core.limits import Exceeded
    from proxy.core.vault import Filling
    from proxy.gate.gate import ReaderThreads
    from proxy.gate.outbound_scan import Carried
    from proxy.gate.refusal import CallState
    from proxy.gate.tool_catalog import ToolFinding

log = structlog.get_logger("interlock.gate")

# What is masked in every record, whatever the policy says: a log of secrets would be a second leak.
RECORDED: Sequence[str] = ("secrets", "pii", "custom")
# How many findings of what only the record masks an event holds: a list of a million addresses is no event.
MAX_FOUND = 100
MAX_IDENTITIES = 1024
TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class EventRecorder:
    """Makes events and hands them to the sink."""

    def __init__(
        self,
        sink: EventSink,
        redactor: Redactor,
        clock: Callable[[], float],
        threads: ReaderThreads,
        timer: Callable[[], float],
    ) -> None:
        self._sink = sink
        self._redactor = redactor
        self._identities: dict[Identity, Json] = {}
        self._clock = clock
        self._threads = threads
        self._timer = timer

    async def decided(
        self, state: CallState, reason: str | None = None, *, with_arguments: bool = True, quietly: bool = False
    ) -> None:
        """Return once the decision on a message is durable; `reason` is that of a refusal.

        `quietly` waits for nothing: for messages that make a server do nothing. Raises AuditUnavailableError where
        it cannot be made durable.
        """
        if state.is_small:
            event = self._decided(state, reason, with_arguments)
        else:
            event = await self._threads.run(state.size, self._decided, state, reason, with_arguments)
        if quietly:
            self._sink.record_later(event)
        else:
            await self._sink.record(event)

    def completed(
        self,
        in_flight: InFlightCall,
        outcome: str,
        *,
        is_error: bool | None = None,
        result_size: int | None = None,
        delivered: bytes | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        """Record how a call ended. `delivered` is what the client was given, where it was given something."""
        message, context, now = in_flight.message, in_flight.context, self._timer()
        self._later(
            AuditEvent(
                kind="completed",
                time=self._clock(),
                call_id=in_flight.call_id,
                agent=context.principal.agent,
                authenticated=context.principal.authenticated,
                server=context.server,
                transport=context.transport,
                revision=context.revision,
                session=context.session,
                jsonrpc_id=message.id,
                method=message.method,
                tool=in_flight.call.tool,
                policy_version=in_flight.decision.policy_version,
                redactions=in_flight.findings + findings,
                upstream_ms=_ms(now - in_flight.forwarded),
                total_ms=_ms(now - in_flight.started),
                result_digest=digest(delivered) if delivered is not None else None,
                result_size=result_size,
                is_error=is_error,
                outcome=outcome,
                detail=_ending(in_flight),
            )
        )

    def record_refusal(self, kind: str, reason: str, context: Context, **detail: Any) -> str:
        """Log and record something that was refused outside any call; return the event's id."""
        log.warning(kind, reason=reason, agent=context.principal.agent, server=context.server, **detail)
        return self.record_event(kind, reason, context, "deny", detail)

    async def credentials_used(self, context: Context, filling: Filling) -> None:
        """Return once it is durable that credentials are put into a request that is not MCP.

        Raises AuditUnavailableError where it cannot be made so.
        """
        detail = {**self._told(context), **credential_detail(filling)}
        event = AuditEvent(
            event_id=new_id(),
            kind="credential_used",
            time=self._clock(),
            decision="allow",
            detail=detail,
            **_origin(context),
        )
        await self._sink.record(event)

    def act_refused(self, context: Context, in_flight: InFlightCall | None, rule: str, detail: JsonObject) -> None:
        """Record what a sandbox refused a server to do, or would have refused, in a call or outside any."""
        try:
            shown = self.masked(detail)
        except Exception as error:
            log.exception("what was refused cannot be masked", error=str(error))
            shown = {"withheld": True}
        would_be = "would_be" in detail
        self._later(
            AuditEvent(
                kind="act_refused",
                time=self._clock(),
                call_id=in_flight.call_id if in_flight else None,
                jsonrpc_id=in_flight.message.id if in_flight else None,
                method=in_flight.message.method if in_flight else None,
                tool=in_flight.call.tool if in_flight else None,
                reason="sandbox_violation",
                rule=None if would_be else rule,
                shadow_rules=(rule,) if would_be else (),
                detail=shown if isinstance(shown, dict) else {},
                **_origin(in_flight.context if in_flight else context),
            )
        )

    def record_event(
        self,
        kind: str,
        reason: str,
        context: Context,
        decision: str,
        detail: JsonObject | None = None,
        carried: Carried | None = None,
    ) -> str:
        """Record something that happened outside any call; return the event's id."""
        event_id, egress = new_id(), context.egress
        self._later(
            AuditEvent(
                event_id=event_id,
                kind=kind,
                time=self._clock(),
                reason=reason,
                decision=decision,
                rule=carried.redaction.rule if carried else egress.rule if egress else None,
                redactions=carried.findings if carried else (),
                shadow_rules=egress.shadow if egress else (),
                policy_version=egress.policy_version if egress else None,
                detail={**_egress_detail(context), **self._told(context), **(detail or {})},
                **_origin(context),
            )
        )
        return event_id

    def _told(self, context: Context) -> JsonObject:
        identity = context.principal.identity
        return {} if identity is None else {"identity": self._identity(identity)}

    def found(self, context: Context, finding: ToolFinding) -> None:
        """Record what was found in a tool list."""
        log.warning(finding.kind, server=context.server, tool=finding.tool, **finding.detail)
        self._later(
            AuditEvent(
                kind=finding.kind,
                time=self._clock(),
                tool=finding.tool,
                reason=finding.reason,
                decision="deny" if finding.enforced else None,
                detail={"server": context.server, "tool": finding.tool, **finding.detail},
                **_origin(context),
            )
        )

    def screened(
        self,
        context: Context,
        tool: str | None,
        call_id: str | None,
        screening: Screening,
        detail: JsonObject,
        *,
        withholds: bool,
    ) -> None:
        """Record text that speaks to the model, which a server, a page or another agent sent."""
        log.warning("injection_found", server=context.server, tool=tool, rule=screening.rule, **detail)
        self._later(
            AuditEvent(
                kind="injection_found",
                time=self._clock(),
                call_id=call_id,
                tool=tool,
                reason="injected_instructions",
                rule=None if screening.shadow else screening.rule,
                shadow_rules=(screening.rule,) if screening.shadow else (),
                decision="deny" if withholds else None,
                detail={"server": context.server, **detail},
                **_origin(context),
            )
        )

    def behaviour(
        self,
        context: Context,
        in_flight: InFlightCall | None,
        reason: str,
        met: ActRule | None,
        detail: JsonObject,
        *,
        withholds: bool,
    ) -> None:
        """Record an act of a server's that a rule is about, or a call whose acts are not known."""
        shown = self._shown(detail)
        shadow = met is not None and met.shadow
        log.warning("behaviour_found", server=context.server, reason=reason, rule=met.rule if met else None)
        self._later(
            AuditEvent(
                kind="behaviour_found",
                time=self._clock(),
                call_id=in_flight.call_id if in_flight else None,
                jsonrpc_id=in_flight.message.id if in_flight else None,
                method=in_flight.message.method if in_flight else None,
                tool=in_flight.call.tool if in_flight else None,
                reason=reason,
                rule=met.rule if met and not shadow else None,
                shadow_rules=(met.rule,) if met and shadow else (),
                decision="deny" if withholds else None,
                detail=shown,
                **_origin(context),
            )
        )

    def _shown(self, detail: JsonObject) -> JsonObject:
        """Return what was observed, masked; of what cannot be masked, the phase alone."""
        try:
            shown = self.masked(detail)
        except Exception as error:
            log.exception("what was observed cannot be masked", error=str(error))
            shown = {"phase": detail.get("phase"), "withheld": True}
        return shown if isinstance(shown, dict) else {}

    def refused_request(self, context: Context, call: Call, decision: Decision, call_id: str) -> None:
        """Record that a request or notification of a server's was not passed on to the client."""
        log.warning("refused what a server sent", server=context.server, method=call.method, rule=decision.rule)
        self._later(
            AuditEvent(
                kind="decided",
                time=self._clock(),
                call_id=call_id,
                method=call.method,
                arguments=self.masked(call.arguments),
                decision="deny",
                reason=decision.reason,
                rule=decision.rule,
                rules=decision.matched,
                shadow_rules=decision.shadow,
                policy_version=decision.policy_version,
                detail={"sent_by": "server"},
                **_origin(context),
            )
        )

    def labelled(self, mark: Mark) -> None:
        """Record which labels a result brought; of a page that was fetched, this is the event that denials name."""
        self._later(
            AuditEvent(
                kind="labelled",
                time=self._clock(),
                call_id=mark.call_id,
                agent=mark.agent,
                server=mark.server,
                session=mark.session,
                tool=mark.tool,
                detail={"labels": list(mark.labels), "complete": mark.complete},
            )
        )

    def observed(self, context: Context, in_flight: InFlightCall | None, detail: JsonObject) -> None:
        """Record what a server was observed to do, in a call or outside any."""
        shown = self._shown(detail)
        self._later(
            AuditEvent(
                kind="observed",
                time=self._clock(),
                call_id=in_flight.call_id if in_flight else None,
                jsonrpc_id=in_flight.message.id if in_flight else None,
                method=in_flight.message.method if in_flight else None,
                tool=in_flight.call.tool if in_flight else None,
                detail=shown,
                **_origin(in_flight.context if in_flight else context),
            )
        )

    def _later(self, event: AuditEvent) -> None:
        try:
            self._sink.record_later(event)
        except Exception as error:
            log.exception("an event could not be recorded", kind=event.kind, call_id=event.call_id, error=str(error))

    def _decided(self, state: CallState, reason: str | None, with_arguments: bool) -> AuditEvent:  # noqa: FBT001
        call, decision, message, context = state.call, state.decision, state.message, state.context
        arguments = call.arguments if call and with_arguments else None
        shown: Json = arguments
        findings, hashed = state.findings, None
        # Known to hold nothing to mask: recorded as they came, and the writer, which encodes them anyway, hashes them.
        if arguments is not None and arguments is state.clean and state.is_small:
            hashed = AS_RECORDED
        elif arguments is not None:
            hashed = digest(serialise(arguments, small=state.is_small))
            if arguments is not state.clean:
                shown, found = self._redactor.mask(arguments, RECORDED)
                findings += tuple(_only_recorded(state, found))
        detail = _detail(state)
        if context.principal.identity is not None:
            detail["identity"] = self._identity(context.principal.identity)
        if state.external:
            detail["external"] = self.masked(list(state.external))
        return AuditEvent(
            kind="decided",
            time=self._clock(),
            call_id=state.call_id,
            agent=context.principal.agent,
            authenticated=context.principal.authenticated,
            server=context.server,
            transport=context.transport,
            revision=context.revision,
            session=context.session,
            jsonrpc_id=message.id if message else None,
            method=message.method if message else state.method,
            tool=call.tool if call else None,
            arguments=shown,
            arguments_hash=hashed,
            decision="deny" if reason else "propose" if state.phase == "propose" else "allow",
            reason=reason or state.recorded_reason or (decision.reason if decision else None),
            rule=decision.rule if decision and not reason else state.rule,
            rules=decision.matched if decision else (),
            shadow_rules=_shadow(decision, context.egress),
            policy_version=decision.policy_version if decision else None,
            redactions=findings,
            gate_ms=_ms(self._timer() - state.started),
            detail=detail,
        )

    def now(self) -> float:
        """Return the time that events get."""
        return self._clock()

    def _identity(self, identity: Identity) -> Json:
        """Return what events tell of an agent, masked; made once for all calls alike."""
        known = self._identities.get(identity)
        if known is None:
            if len(self._identities) >= MAX_IDENTITIES:
                self._identities.clear()
            try:
                known = self.masked(identity.data())
            except Exception as error:
                log.exception("what is known of an agent cannot be masked", error=str(error))
                known = {"withheld": True}
            self._identities[identity] = known
        return known

    def phased(self, state: CallState, kind: str, detail: JsonObject) -> None:
        """Record what became of a proposal: `proposed` or `committed`."""
        call, decision = state.call, state.decision
        self._later(
            AuditEvent(
                kind=kind,
                time=self._clock(),
                call_id=state.call_id,
                method=state.method,
                tool=call.tool if call else None,
                rule=decision.rule if decision else None,
                policy_version=decision.policy_version if decision else None,
                detail={**state.phase_detail, **detail},
                **_origin(state.context),
            )
        )

    def masked(self, value: Json) -> Json:
        """Return a value as it may be stored."""
        return self._redactor.mask(value, RECORDED)[0] if value is not None else None


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()


def _only_recorded(state: CallState, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield what was found in masking the record that no rule had found before."""
    known = {(finding.detector, finding.fingerprint) for finding in state.findings}
    below = "arguments." if state.call is not None and state.call.tool is not None else ""
    for finding in found[:MAX_FOUND]:
        if (finding.detector, finding.fingerprint) not in known:
            yield replace(finding, path=below + finding.path, record_only=True)


def _shadow(decision: Decision | None, egress: Decision | None) -> tuple[str, ...]:
    ours, theirs = decision.shadow if decision else (), egress.shadow if egress else ()
    return tuple(dict.fromkeys(ours + theirs)) if theirs else ours


def _ending(in_flight: InFlightCall) -> JsonObject:
    detail: JsonObject = {}
    if in_flight.begun:
        detail["secret_begun"] = True
    if in_flight.commit:
        detail["proposal_id"] = in_flight.commit.proposal_id
    # So that the call's span is in the same trace whenever it is exported, and by whatever process.
    if in_flight.traceparent is not None:
        detail["traceparent"] = in_flight.traceparent
    return detail


def _detail(state: CallState) -> JsonObject:
    detail = _egress_detail(state.context)
    if state.phase is not None:
        detail |= state.phase_detail
    # What the server says of the tool, where it says something: `audit replay` decides by it again.
    if state.call is not None and state.call.hints is not UNSAID and state.call.hints != UNSAID:
        detail["annotations"] = state.call.hints.data()
    state.traceparent = trace_parent(state.message, state.context)
    if state.traceparent is not None:
        detail["traceparent"] = state.traceparent
    if state.context.sandbox is not None:
        detail["sandbox"] = state.context.sandbox
    if state.limits:
        detail["limits"] = [_beyond(one) for one in state.limits]
    if state.halted is not None:
        detail["halt_id"] = state.halted
    if state.filling is not None:
        detail |= credential_detail(state.filling)
    return detail if state.flows is None else {**detail, **state.flows.detail()}


def _beyond(one: Exceeded) -> JsonObject:
    # As text: amounts have more digits than the numbers of JSON.
    charge = one.charge
    return {"limit": charge.limit, "kind": charge.kind, "used": str(one.used), "max": str(charge.most)}


def credential_detail(filling: Filling) -> JsonObject:
    """Return what events say of credentials: names alone."""
    told: JsonObject = {"credentials": list(filling.names)} if filling.names else {}
    return {**told, "placeholders_as_text": list(filling.as_text)} if filling.as_text else told


def trace_parent(message: Message | None, context: Context) -> str | None:
    """Return the W3C trace context that a message came in: that of MCP's `_meta`, or else of the HTTP request."""
    meta = message.params.get("_meta") if message is not None else None
    said = meta.get("traceparent") if isinstance(meta, dict) else None
    for value in (said, context.traceparent):
        # Nothing else of a trace is recorded: what vendors put in `tracestate` and `baggage` may be anything.
        if isinstance(value, str) and TRACE_PARENT.fullmatch(value):
            return value
    return None


def _egress_detail(context: Context) -> JsonObject:
    """Return what exactly policy objected to in a destination; nothing where it did not."""
    egress = context.egress
    return {} if egress is None or egress.outcome is Outcome.ALLOW else {"egress": egress.reason}


def _origin(context: Context) -> dict[str, Any]:
    return {
        "agent": context.principal.agent,
        "authenticated": context.principal.authenticated,
        "server": context.server,
        "transport": context.transport,
        "revision": context.revision,
        "session": context.session,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1_000_000) / 1000  # `round(x, 3)` goes through text, which takes twice as long
