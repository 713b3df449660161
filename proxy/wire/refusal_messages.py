"""Refusals as messages that the proxy sends in a server's place. Pure.

A refusal is an ordinary answer to the request's own id, so that every SDK hands it to the model at once and the
session lives on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.wire.mcp import HEADER_MISMATCH, TOOLS_CALL

if TYPE_CHECKING:
    from proxy.core.model import Denial, JsonObject, MessageId

DENIED = 40301
DENIAL_META = "mcp-interlock/denial"
AUDIT_META = "mcp-interlock/audit"


def refuse(request_id: MessageId, method: str | None, denial: Denial, params: Any = None) -> JsonObject:
    """Return the answer to a refused request: a tool result that says so, or a JSON-RPC error."""
    # A call with `task` expects a task and no tool result, so it gets the error.
    as_task = isinstance(params, dict) and params.get("task") is not None
    mismatch = denial.reason == "header_mismatch"  # the protocol has an error code for it
    reply: JsonObject = {"jsonrpc": "2.0", "id": request_id}
    if method == TOOLS_CALL and denial.respond == "result" and not (as_task or mismatch):
        return {**reply, "result": refused_result(denial)}
    code = HEADER_MISMATCH if mismatch else DENIED
    return {**reply, "error": {"code": code, "message": denial.text, "data": denial.data()}}


def refused_result(denial: Denial) -> JsonObject:
    """Return the `CallToolResult` that tells a model what was refused and what to do."""
    return {
        "content": [{"type": "text", "text": denial.text}],
        "isError": True,
        "resultType": "complete",  # without it the modern clients of both SDKs raise a validation error
        "_meta": {DENIAL_META: denial.data()},
    }
