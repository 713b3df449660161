"""One line of the list."""

from __future__ import annotations

from typing import Any

from proxy.console.call_rows import ending, row_of_event

EVENT: dict[str, Any] = {
    "event_id": "e1",
    "call_id": "c1",
    "time": 1_763_418_000.25,
    "kind": "decided",
    "decision": "deny",
    "tool": "read\u202efile",
    "reason": "policy_denied",
    "rule": "r",
    "arguments": {"path": "/etc\x00"},
    "redactions": [{}],
}


def test_every_value_is_visible_and_has_a_place() -> None:
    row = row_of_event(EVENT)
    assert row["id"] == "c1"
    assert (row["time"], row["clock"]) == ("2025-11-17T22:20:00.250Z", "22:20:00.250")
    assert (row["decision"], row["label"], row["tool"]) == ("deny", "denied", "read\\u202efile")
    assert row["arguments"] == "path: /etc\\u0000"
    assert (row["masked"], row["agent"], row["outcome"]) == (1, "", "")


def test_a_decision_that_is_none_of_ours_is_no_class_of_a_page() -> None:
    row = row_of_event(EVENT | {"decision": 'x" onload="'})
    assert row["decision"] == "other"
    assert row["label"] == 'x" onload="'


def test_an_event_outside_a_call_is_known_by_its_own_id() -> None:
    assert row_of_event(EVENT | {"call_id": None})["id"] == "e1"


def test_endings() -> None:
    assert ending({}, decision="allow")["outcome"] == "running"
    assert ending({}, decision="deny") == {"outcome": "", "failed": False, "ms": ""}
    done = ending({"outcome": "done", "is_error": False, "total_ms": 1.23}, decision="allow")
    assert done == {"outcome": "done", "failed": False, "ms": "1.2 ms"}
    assert ending({"outcome": "tool_error", "is_error": True, "total_ms": 1500})["failed"]
    assert ending({"outcome": "done", "total_ms": 1500})["ms"] == "1.50 s"
