"""Calls of other agents in plain HTTP: decided as messages, and taken apart again on both sides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.core.model import Answer, Context, Denial, Forward, InFlightCall, Reject, Verdict
from proxy.errors import WireError
from proxy.gate.router import ResponseRouter
from proxy.wire.a2a import read_rest, rest_error, rest_method
from proxy.wire.body import ParsedBody, RefusedBody, SingleMessage
from proxy.wire.jsonrpc import reencode, serialise

if TYPE_CHECKING:
    from proxy.gate.response import ResponseGate
    from proxy.wire.mcp import RequestHead


def read_call(body: bytes, head: RequestHead, context: Context, limit: int, call_id: str) -> ParsedBody | None:
    """Return the call that a request makes by its path; None where it makes none."""
    method = rest_method(context.target)
    if method is None or not body:
        return None
    try:
        return SingleMessage(read_rest(method, body, head.encodings, limit, _message_id(call_id)))
    except WireError as error:
        return RefusedBody(error.reason, error.detail, None, method)


def unwrap(verdict: Verdict) -> Verdict:
    """Return the verdict on such a call as plain HTTP carries it out."""
    match verdict:
        case Forward(message=message):
            body = serialise(message.params)
            return replace(verdict, encoded=body)
        case Answer(replies=(reply,)):
            error = reply.get("error", {})
            data = error.get("data", {})
            denial = Denial(
                str(data.get("reason", "internal_error")),
                str(error.get("message", "")),
                data.get("rule"),
                data.get("audit_id"),
                data.get("retryable") is True,
            )
            return Reject(denial, 403)
        case _:
            return verdict


class RestRouter(ResponseRouter):
    """Takes what an agent answers in plain HTTP: a result without an envelope, whole or event by event."""

    def rewrite(self, body: bytes) -> list[bytes] | None:
        assert self.in_flight is not None
        try:
            value = json.loads(body)
        except ValueError:
            return self._unreadable(body)
        wrapped = {"id": self.in_flight.message.id, "result": value}
        observed = self._responses.observe(self.in_flight, wrapped, body)
        self._bring(self.in_flight, observed)
        if observed is wrapped:
            return None
        return [reencode(observed["result"] if "result" in observed else rest_error(observed))]


def router_for(
    responses: ResponseGate, context: Context, in_flight: InFlightCall | None, seal_key: bytes
) -> ResponseRouter:
    """Return what takes the response to a request."""
    # By the id that `read_call` gave it, which holds the call's own and so is nobody else's to choose.
    is_own = in_flight is not None and in_flight.message.id == _message_id(in_flight.call_id)
    return (RestRouter if is_own else ResponseRouter)(responses, context, in_flight, seal_key)


def _message_id(call_id: str) -> str:
    return f"rest {call_id}"
