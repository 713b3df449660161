"""The attributes of an event, by OpenTelemetry's conventions for MCP, and Interlock's own. Pure.

docs/telemetry.md has the table. Values are those of the audit trail, which are masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.core.json_codec import encode_json
from proxy.telemetry.otlp_values import clean, texts

if TYPE_CHECKING:
    from proxy.telemetry.exported_event import ExportedEvent

_TRANSPORTS = {
    "http": ("tcp", "http"),
    "sse": ("tcp", "http"),
    "websocket": ("tcp", "websocket"),
    "stdio": ("pipe", None),
}
STATELESS = "2026-07-28"  # the first revision without sessions
MAX_ARGUMENTS = 32_768


def operation(event: ExportedEvent) -> dict[str, Any]:
    """Return what was asked for: the attributes that spans, metrics and logs share."""
    method, tool = event.text("method"), event.text("tool")
    transport, protocol = _TRANSPORTS.get(event.text("transport") or "", (None, None))
    return {
        "mcp.method.name": method,
        "gen_ai.operation.name": "execute_tool" if method == "tools/call" else None,
        "gen_ai.tool.name": tool,
        "mcp.protocol.version": event.text("revision"),
        "error.type": event.failure,
        "network.transport": transport,
        "network.protocol.name": protocol,
    }


def request(event: ExportedEvent) -> dict[str, Any]:
    """Return what tells one request from another."""
    request_id = event.text("jsonrpc_id")
    return {
        "jsonrpc.request.id": request_id,
        "jsonrpc.protocol.version": "2.0" if event.text("method") else None,
        "mcp.session.id": _session(event),
        "gen_ai.agent.name": event.text("agent"),
    }


def _session(event: ExportedEvent) -> str | None:
    revision = event.text("revision")
    return None if revision is not None and revision >= STATELESS else event.text("session")


def server(event: ExportedEvent) -> dict[str, Any]:
    """Return where the MCP server is. The name of a local server is no address."""
    name = event.text("server")
    if name is None or event.text("transport") in ("stdio", "hook"):
        return {}
    host, colon, port = name.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.startswith("[")):
        return {"server.address": host.strip("[]"), "server.port": int(port)}
    return {"server.address": name}


def asked_for(event: ExportedEvent) -> dict[str, Any]:
    """Return the prompt or resource that was asked for, masked; only a `decided` event has it."""
    asked = event.fields.get("arguments")
    if not isinstance(asked, dict):
        return {}
    match event.text("method"):
        case "prompts/get":
            return {"gen_ai.prompt.name": _text(asked.get("name"))}
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            return {"mcp.resource.uri": _text(asked.get("uri"))}
    return {}


def arguments(event: ExportedEvent) -> dict[str, Any]:
    """Return a tool's arguments, masked, as JSON text, where the event still has them."""
    asked = event.fields.get("arguments")
    if asked is None or event.text("method") != "tools/call":
        return {}
    return {"gen_ai.tool.call.arguments": clean(encode_json(asked), MAX_ARGUMENTS)}


def verdict(event: ExportedEvent) -> dict[str, Any]:
    """Return what was decided, by which rule and why, as far as it says so. A call that completed had been allowed."""
    done = event.kind == "completed"
    said = {
        "interlock.audit_id": event.call_id or event.event_id,
        "interlock.decision": event.text("decision") or ("allow" if done else None),
        "interlock.reason": event.text("reason"),
        "interlock.rule": event.text("rule"),
        "interlock.rules": texts(event.fields.get("rules")),
        "interlock.shadow_rules": texts(event.fields.get("shadow_rules")),
        "interlock.policy_version": event.text("policy_version"),
        "interlock.outcome": event.text("outcome"),
        "interlock.detectors": _detectors(event),
        "interlock.server": event.text("server"),
        "interlock.authenticated": event.fields.get("authenticated") is True if event.text("agent") else None,
    }
    return {name: value for name, value in said.items() if value is not None and value != ()}


def _detectors(event: ExportedEvent) -> tuple[str, ...]:
    found = event.fields.get("redactions")
    names = [one.get("detector") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
