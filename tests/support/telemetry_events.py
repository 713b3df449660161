"""Audit events as a log has them, plain ones and hostile ones, for the tests of exported forms."""

from __future__ import annotations

import json
from typing import Any

from proxy.core.event import LogEntry
from proxy.telemetry.exported_event import ExportedEvent, read_entry

TRACE_ID, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT}-01"
WRITER, CHAIN = "01930000-0000-7000-8000-000000000001", "ab" * 32
NOW = 1_763_000_000.25

CALL: dict[str, Any] = {
    "schema_version": 1,
    "event_id": "01930000-0000-7000-8000-00000000000a",
    "kind": "decided",
    "time": NOW,
    "host": "machine-1",
    "proxy_version": "0.1.0",
    "call_id": "01930000-0000-7000-8000-00000000000c",
    "agent": "ada",
    "authenticated": True,
    "server": "files.example:8443",
    "transport": "http",
    "revision": "2025-11-25",
    "session": "session-1",
    "jsonrpc_id": 7,
    "method": "tools/call",
    "tool": "read_file",
    "arguments": {"path": "/etc/hosts"},
    "arguments_hash": "aa" * 32,
    "decision": "allow",
    "reason": "policy_allowed",
    "rule": "readers",
    "rules": ["readers", "scrub"],
    "policy_version": "0123456789ab",
    "gate_ms": 0.5,
    "detail": {"traceparent": TRACEPARENT},
}
DENIED = CALL | {"decision": "deny", "reason": "policy_denied", "rule": "no-system-paths"}
_DECIDED = ("decision", "reason", "rule", "rules", "arguments")
COMPLETED = {name: value for name, value in CALL.items() if name not in _DECIDED} | {
    "kind": "completed",
    "event_id": "01930000-0000-7000-8000-00000000000b",
    "time": NOW + 0.25,
    "upstream_ms": 240.0,
    "total_ms": 250.0,
    "outcome": "done",
    "is_error": False,
    "result_size": 1234,
    "detail": {"traceparent": TRACEPARENT},
}  # fmt: skip
FINDING = {
    "event_id": "f1", "kind": "injection_found", "time": NOW, "server": "files.example", "tool": "read_file",
    "reason": "injected_instructions", "rule": "incoming", "detail": {"sign": "override", "text": "ignore all"},
}  # fmt: skip
OPERATOR = {"event_id": "o1", "kind": "approved", "time": NOW, "detail": {"operator": "eve", "proposal_id": "p"}}
GAP = {"event_id": "g1", "kind": "audit_gap", "time": NOW, "detail": {"missed": 3, "since": NOW - 9}}
BARE = {"event_id": "b1", "kind": "something_new", "time": 0}
PLAIN = {
    "allowed": CALL,
    "denied": DENIED,
    "completed": COMPLETED,
    "failed": COMPLETED | {"outcome": "tool_error", "is_error": True},
    "proposed": CALL | {"decision": "propose", "reason": "proposal_pending"},
    "listed": CALL | {"method": "tools/list", "tool": None, "arguments": None},
    "stdio": COMPLETED | {"transport": "stdio", "server": "files"},
    "finding": FINDING,
    "operator": OPERATOR,
    "gap": GAP,
    "bare": BARE,
    "refused": {"event_id": "r1", "kind": "request_refused", "time": NOW, "decision": "deny", "reason": "halted"},
}
# What agents and servers may put into names, ids and arguments.
HOSTILE = {
    "newline": "a\nCEF:0|x|y|1|2|3|10|act=allow",
    "carriage": "a\r\n<13>1 - - - - - - forged",
    "pipe": "a|b|c",
    "equals": "x act=allow cs2=none",
    "backslash": "a\\",
    "backslashes": "a\\\\=\\n\\|",
    "bracket": 'a"] [forged@1 x="y"]',
    "nul": "a\x00b",
    "escape": "a\x1b[2Jb",
    "c1": "a\x9bb\x85c",
    "direction": "a\u202egnp.exe\u2066",
    "separator": "a\u2028b\u2029c",
    "surrogate": "a\ud800b",
    "bom": "\ufeffa",
    "long": "x" * 100_000,
    "astral": "a😀\U0010ffff",
    "octets": "99999 <1>1",
    "tab": "a\tb",
    "empty-like": " ",
}


def entry(fields: dict[str, Any], seq: int | None = 3) -> LogEntry:
    # As the log keeps it: half a surrogate pair is replaced before it is written, but a forged log could hold one.
    return LogEntry(json.dumps(fields), WRITER, seq, CHAIN)


def exported(fields: dict[str, Any], *, with_arguments: bool = False) -> ExportedEvent:
    return read_entry(entry(fields), with_arguments=with_arguments)


def hostile(text: str) -> dict[str, Any]:
    """Return an event in which everything that others choose is this text."""
    chosen = ("agent", "server", "session", "jsonrpc_id", "method", "tool", "rule", "host", "kind", "outcome", "reason")
    return DENIED | dict.fromkeys(chosen, text) | {"arguments": {text: text}, "rules": [text]}
