"""Audit events in the Open Cybersecurity Schema Framework, version 1.8. Pure.

What a client asked for, and what became of it, is an API Activity (6003) with the profiles `ai_operation`,
`security_control` and `trace`. What was found in what servers say or do is a Detection Finding (2004).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxy.telemetry.exported_event import FINDINGS, json_line
from proxy.telemetry.trace_context import read_traceparent

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.telemetry.exported_event import ExportedEvent

VERSION: Final = "1.8.0"
API_ACTIVITY, DETECTION_FINDING = 6003, 2004
_SEVERITIES: Final = {"info": (1, "Informational"), "low": (2, "Low"), "medium": (3, "Medium"), "high": (4, "High")}
_READS: Final = ("/list", "/get", "/read", "/result")
_ACTIONS: Final = {
    "allow": {"action_id": 1, "action": "Allowed", "disposition_id": 1, "disposition": "Allowed"},
    "deny": {"action_id": 2, "action": "Denied", "disposition_id": 2, "disposition": "Blocked"},
    "propose": {"action_id": 99, "action": "Proposed", "disposition_id": 14, "disposition": "Delayed"},
}
UNKNOWN: Final = "unknown"


def ocsf_event(event: ExportedEvent) -> JsonObject:
    """Return an event as OCSF's JSON object."""
    number, word = _SEVERITIES[event.severity]
    common = {
        "time": round(event.time * 1000),
        "severity_id": number,
        "severity": word,
        "message": event.summary,
        "metadata": _metadata(event),
        **_ACTIONS.get(event.text("decision") or "", {"action_id": 3, "action": "Observed"}),
        **_policy(event),
        "is_alert": event.severity == "high",
        "unmapped": _unmapped(event),
    }
    special = _finding(event) if event.kind in FINDINGS else _activity(event)
    return {name: value for name, value in (special | common).items() if value is not None}


def _metadata(event: ExportedEvent) -> JsonObject:
    product: JsonObject = {"name": "Interlock", "vendor_name": "mcp-interlock"}
    if version := event.text("proxy_version"):
        product["version"] = version
    profiles = ["security_control"] if event.kind in FINDINGS else ["ai_operation", "security_control", "trace"]
    metadata: JsonObject = {
        "version": VERSION,
        "product": product,
        "profiles": profiles,
        "uid": event.event_id,
        "event_code": event.kind,
        "log_name": "audit",
        "correlation_uid": event.call_id,
        "sequence": event.seq,
        "log_provider": event.writer,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def _policy(event: ExportedEvent) -> JsonObject:
    told: JsonObject = {}
    if rule := event.text("rule"):
        told["firewall_rule"] = {"uid": rule, "name": rule}
    if version := event.text("policy_version"):
        told["policy"] = {"uid": version, "version": version, "is_applied": True}
    return told


def _activity(event: ExportedEvent) -> JsonObject:
    method = event.text("method")
    reads = method is not None and method.endswith(_READS)
    activity = (2, "Read") if reads else (99, method or event.kind)
    return {
        **_class(API_ACTIVITY, "API Activity", (6, "Application Activity"), activity),
        **_status(event),
        "actor": _actor(event),
        "src_endpoint": {"name": event.who or event.text("host") or UNKNOWN},
        "dst_endpoint": {"svc_name": server} if (server := event.text("server")) else None,
        "api": _api(event),
        "message_context": _message_context(event),
        "trace": _trace(event),
        "duration": None if (took := event.number("total_ms")) is None else round(took),
    }


def _class(uid: int, name: str, category: tuple[int, str], activity: tuple[int, str]) -> JsonObject:
    return {
        "category_uid": category[0],
        "category_name": category[1],
        "class_uid": uid,
        "class_name": name,
        "activity_id": activity[0],
        "activity_name": activity[1],
        "type_uid": uid * 100 + activity[0],
        "type_name": f"{name}: {activity[1] if activity[0] != 99 else 'Other'}",
    }


def _status(event: ExportedEvent) -> JsonObject:
    failure = event.failure or ("tool_error" if event.fields.get("is_error") is True else None)
    status = {"status_id": 2, "status": "Failure"} if failure else {"status_id": 1, "status": "Success"}
    code = failure or event.text("outcome") or event.text("reason")
    return status | ({"status_code": code} if code else {})


def _actor(event: ExportedEvent) -> JsonObject:
    agent = event.text("agent")
    user: JsonObject = {"name": event.who or UNKNOWN}
    user |= {"type_id": 99, "type": "AI Agent"} if agent else {"type_id": 1 if event.who else 0}
    actor: JsonObject = {"user": user}
    if agent:
        actor["app_name"] = agent
    return actor


def _api(event: ExportedEvent) -> JsonObject:
    api: JsonObject = {"operation": event.text("method") or event.kind}
    if server := event.text("server"):
        api["service"] = {"name": server}
    if revision := event.text("revision"):
        api["version"] = revision
    request: JsonObject = {"uid": event.text("jsonrpc_id") or event.call_id or event.event_id}
    asked = event.fields.get("arguments")
    if asked is not None:
        request["data"] = asked if isinstance(asked, dict) else {"value": asked}
    api["request"] = request
    if failure := event.failure:
        api["response"] = {"error": failure, "message": event.summary}
    return api


def _message_context(event: ExportedEvent) -> JsonObject | None:
    tool, server = event.text("tool"), event.text("server")
    if server is None:
        return None
    role = {"ai_role_id": 3, "ai_role": "Tool"} if tool else {"ai_role_id": 4, "ai_role": "Agent"}
    return {**role, "name": tool or event.text("agent") or UNKNOWN, "service": {"name": server}}


def _trace(event: ExportedEvent) -> JsonObject | None:
    trace = read_traceparent(event.detail.get("traceparent"))
    return None if trace is None else {"uid": trace.trace_id.hex()}


def _finding(event: ExportedEvent) -> JsonObject:
    evidence: JsonObject = {"data": {"kind": event.kind, "detail": dict(event.detail)}}
    if server := event.text("server"):
        evidence["dst_endpoint"] = {"svc_name": server}
    info: JsonObject = {
        "uid": event.event_id,
        "title": event.summary,
        "types": [event.kind],
        "created_time": round(event.time * 1000),
    }
    named = event.text("tool") or event.text("server")
    return {
        **_class(DETECTION_FINDING, "Detection Finding", (2, "Findings"), (1, "Create")),
        "status_id": 1,
        "status": "New",
        "finding_info": info,
        "evidences": [evidence],
        "resources": [{"name": named, "type": "MCP tool" if event.text("tool") else "MCP server"}] if named else None,
    }


# What OCSF has no attribute for, by the names of the audit event.
_UNMAPPED: Final = (
    *("kind", "decision", "reason", "rules", "shadow_rules", "transport", "session", "authenticated"),
    *("arguments_hash", "result_digest", "result_size", "gate_ms", "upstream_ms", "redactions"),
)


def _unmapped(event: ExportedEvent) -> JsonObject:
    said: dict[str, Any] = {name: event.fields[name] for name in _UNMAPPED if name in event.fields}
    said["chain"] = event.chain
    if event.kind not in FINDINGS and event.detail:
        said["detail"] = dict(event.detail)
    return {name: value for name, value in said.items() if value is not None}


def ocsf_line(event: ExportedEvent) -> str:
    return json_line(ocsf_event(event))
