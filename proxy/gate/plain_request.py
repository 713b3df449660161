"""What becomes of requests that are not MCP: they go where policy lets them, without the secrets it holds back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from proxy.core import reasons
from proxy.core.model import Context, Denial, EgressRequest, Outcome, Pass, Reject, Verdict
from proxy.errors import StoreUnavailableError, VaultError
from proxy.gate.credentials import sent_plain
from proxy.gate.flows import DENIED
from proxy.gate.halts import why_halted
from proxy.gate.refusal import (
    carried_denial,
    credential_denial,
    egress_denial,
    egress_reason,
    flow_denial,
    may_leave,
    sendable,
)
from proxy.policy.hosts import read_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import Decision, Json
    from proxy.core.vault import Filling
    from proxy.gate.credentials import Credentials
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.flows import FlowGate
    from proxy.gate.halts import ActiveHalts
    from proxy.gate.outbound_scan import Carried, OutboundScanner, UploadWatch
    from proxy.policy.flows import Applying
    from proxy.wire.mcp import Headers

log = structlog.get_logger("interlock.gate")


class PlainRequests:
    """Decides on requests that are not MCP, and records what is noteworthy in them."""

    def __init__(
        self,
        scanner: OutboundScanner,
        recorder: EventRecorder,
        halts: ActiveHalts,
        judge: Callable[[EgressRequest], Decision | None] = lambda _: None,
        flows: FlowGate | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.scanner = scanner
        self._recorder = recorder
        self._halts = halts
        self._judge = judge
        self._flows = flows
        self._credentials = credentials

    async def decide(
        self, context: Context, carried: Carried | None, headers: Headers = (), body: bytes = b""
    ) -> Verdict:
        """Return whether a request may go where it wants to, carrying what was found in it."""
        if (halted := self.refuse_halted(context)) is not None:
            return Reject(halted, 403)
        if not may_leave(context):
            return Reject(self.refuse_egress("request_refused", context), 403)
        if (denial := self.report(context, carried)) is not None:
            return Reject(denial, 403)
        if context.egress is not None and context.egress.shadow:
            self._recorder.record_event("request_shadowed", context.egress.reason, context, "allow")
        if self._flows is not None and (applying := self._flows.request_flows(context)) is not None:
            denial = await self._judge_flows(applying, context, self.scanner.read(context, headers, body))
            if denial is not None:
                return Reject(denial, 403)
        filling = await self.prepare(context, headers, body)
        return Reject(filling, 403) if isinstance(filling, Denial) else Pass(filling)

    async def prepare(self, context: Context, headers: Headers, body: bytes) -> Filling | Denial | None:
        """Have the credentials at hand that a request needs, and record their use; or return its refusal.

        Raises AuditUnavailableError where their use cannot be recorded: then nothing is sent.
        """
        credentials = self._credentials
        if credentials is None or not credentials.may_show(context, headers, body):
            return None
        try:
            filling = await credentials.prepare(sent_plain(context, headers, body))
        except VaultError as error:
            audit_id = self._recorder.record_refusal("request_refused", error.reason, context, why=error.detail)
            return credential_denial(error.reason, error.detail, context.server, audit_id)
        if filling is not None and filling.names:
            await self._recorder.credentials_used(context, filling)
        return filling

    def has_flows(self, context: Context) -> bool:
        """Return whether some flow is about requests to where this one goes."""
        applying = self._flows.request_flows(context) if self._flows is not None else None
        return applying is not None and bool(applying.flows)

    async def refuse_upload(self, context: Context) -> Denial | None:
        """Return the refusal of an upload that is too large to be read whole; None where no flow is about it."""
        if self._flows is None or (applying := self._flows.request_flows(context)) is None:
            return None
        return await self._judge_flows(applying, context, None)

    async def _judge_flows(self, applying: Applying, context: Context, sent: Json | None) -> Denial | None:
        """Return the refusal of a request by a flow; `sent` is None where it cannot be read."""
        assert self._flows is not None
        server = context.server
        try:
            check = await self._flows.judge_request(context, applying, sent, complete=sent is not None)
        except StoreUnavailableError as error:
            log.warning("refusing without the store", server=server, error=str(error))
            audit_id = self._recorder.record_refusal("request_refused", "store_unavailable", context)
            return flow_denial("store_unavailable", server, audit_id)
        if check.hit is None:
            if check.noted:
                self._recorder.record_event("request_reported", DENIED, context, "allow", check.detail())
            return None
        rule = check.hit.flow.rule.id
        audit_id = self._recorder.record_refusal("request_refused", DENIED, context, rule=rule, **check.detail())
        return flow_denial(DENIED, server, audit_id, rule, check.hit.why, check.source)

    def watch_upload(self, context: Context, headers: Headers, limit: int) -> UploadWatch | Denial | None:
        """Return what scans a body that streams, a refusal by its head, or None where no rule asks for either."""
        if (halted := self.refuse_halted(context)) is not None:
            return halted
        denial = self.report(context, self.scanner.look(context, headers, b""))
        return denial or self.scanner.watch(context, headers, limit)

    def report(self, context: Context, carried: Carried | None) -> Denial | None:
        """Record what a request carries; return the refusal where it may not carry that."""
        if carried is None:
            return None
        kind, decision = ("request_refused", "deny") if carried.refused else ("request_reported", "allow")
        log.warning(kind, reason=carried.reason, agent=context.principal.agent, server=context.server)
        audit_id = self._recorder.record_event(kind, carried.reason, context, decision, carried=carried)
        return carried_denial(carried, context.server, audit_id) if carried.refused else None

    def refuse_halted(self, context: Context) -> Denial | None:
        """Record and return the refusal of a request that is halted; None where it is not."""
        halt = self._halts.find_plain(context) if self._halts.active else None
        if halt is None:
            return None
        audit_id = self._recorder.record_refusal("request_refused", "halted", context, halt_id=halt.halt_id)
        text = reasons.explain("halted", f"a request to {context.server}", why_halted(halt))
        return Denial("halted", sendable(f"{text} Audit id: {audit_id}."), audit_id=audit_id)

    def refuse_egress(self, kind: str, context: Context) -> Denial:
        """Record that something may not go where `context` says, and return the refusal."""
        return egress_denial(context, self._recorder.record_refusal(kind, egress_reason(context), context))

    def refuse_redirect(self, context: Context, location: str) -> Denial | None:
        """Return the refusal of an answer that sends the agent where it may not go; None where it may.

        The request that follows would be refused as well; but an agent that is not told where it was sent cannot be
        talked into going there by another way.
        """
        for host in dict.fromkeys(host.name for host in read_url(location).hosts):
            caller = context.principal
            decision = self._judge(EgressRequest(host, 80, "GET", (), caller.agent, identity=caller.identity))
            if decision is not None and decision.outcome is not Outcome.ALLOW:
                return self.refuse_egress("request_refused", replace(context, egress=decision))
        return None
