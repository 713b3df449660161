"""Refuses HTTP requests that the gate need not see, and those that could not be handled; records each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from addons import flow_state as flows

if TYPE_CHECKING:
    from mitmproxy import http

    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.http")


class Refusals:
    """What the addons of HTTP refuse in the same way."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def names_agree(self, flow: http.HTTPFlow) -> bool:
        """Refuse a request that names more than one host."""
        problem = flows.misdirected(flow)
        if problem is None:
            return True
        self._gate.recorder.record_refusal("request_refused", "host_mismatch", flows.context(flow), problem=problem)
        self.refuse(flow, 421, "host_mismatch", f"{problem[:1].upper()}{problem[1:]}.")
        return False

    def framing_is_plain(self, flow: http.HTTPFlow) -> bool:
        """Refuse framing that a server may see differently, and so find another request or body in it."""
        reason = flows.odd_framing(flow.request)
        if reason is None:
            return True
        self._gate.recorder.record_refusal("request_refused", reason, flows.context(flow))
        self.refuse(flow, 400, reason)
        return False

    def may_leave(self, flow: http.HTTPFlow) -> bool:
        """Refuse a request that may not go where it wants to."""
        if flows.may_leave(flow):
            return True
        flows.answer_refused(flow, 403, self._gate.plain_requests.refuse_egress("request_refused", flows.context(flow)))
        return False

    def refuse(self, flow: http.HTTPFlow, status: int, reason: str, why: str = "") -> None:
        """Answer a request with a refusal; the caller records it."""
        flows.answer_refused(flow, status, flows.denial(reason, "the request", why))

    def fail(self, flow: http.HTTPFlow, error: Exception) -> None:
        """Refuse a flow that could not be handled, and record it."""
        log.error("refusing after a failure", flow=flow.id, exc_info=error)
        self.refuse(flow, 502, "internal_error")
        try:
            self._gate.recorder.record_refusal(
                "request_refused", "internal_error", flows.context(flow), error=type(error).__name__
            )
        except Exception as second:
            log.exception("a refusal could not be recorded", error=str(second))
