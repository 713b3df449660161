"""One call as a timeline."""

from __future__ import annotations

from typing import Any

from proxy.console.timeline import Masked, Seen, timeline
from proxy.core.event import LogEntry

CALL: dict[str, Any] = {
    "event_id": "e1",
    "kind": "decided",
    "time": 100.0,
    "call_id": "c1",
    "agent": "bot",
    "tool": "pay",
    "arguments": {"a": 1},
    "decision": "deny",
    "reason": "policy_denied",
    "rule": "no-pay",
    "rules": ["no-pay", "scrub"],
    "gate_ms": 0.4567,
    "policy_version": "abcdef0123456789",
    "redactions": [{"detector": "secrets.aws", "path": "a", "record_only": True}, "odd"],
    "detail": {"egress": "egress_denied"},
}


def entries(*events: dict[str, Any]) -> list[tuple[LogEntry, dict[str, Any]]]:
    return [(LogEntry("", "writer", number, f"link{number}"), event) for number, event in enumerate(events, 7)]


def test_a_decision_says_what_decided_and_what_was_masked() -> None:
    made = timeline(entries(CALL))
    (step,) = made.steps
    assert made.call is CALL
    assert (step.title, step.tone, step.number, step.writer, step.link) == ("Decided", "deny", 7, "writer", "link7")
    assert dict(step.facts) == {
        "Decision": "deny",
        "Reason": "policy_denied",
        "Rule that decided": "no-pay",
        "Rules that matched": "no-pay, scrub",
        "Time in the gate": "0.457 ms",
        "Policy": "abcdef012345",
        "Egress": "egress_denied",
    }
    assert step.masked == (Masked("secrets.aws", "a", True),)


def test_steps_are_in_order_with_the_time_between_them_and_their_proposals() -> None:
    proposed = CALL | {"event_id": "e2", "kind": "proposed", "time": 100.25, "detail": {"proposal_id": "p1"}}
    approved = {"event_id": "e3", "kind": "approved", "time": 101.0, "detail": {"proposal_id": "p1", "operator": "ann"}}
    odd = {"event_id": "e4", "kind": "something_new", "time": 102.0, "detail": "no object"}
    made = timeline(entries(proposed, CALL | {"decision": "propose"}, approved, odd))
    assert [step.title for step in made.steps] == ["Proposed", "Decided", "Approved", "Something new"]
    assert [step.tone for step in made.steps] == ["propose", "propose", "allow", "other"]
    assert made.steps[2].after_ms == 750.0
    assert dict(made.steps[2].facts)["By"] == "ann"
    assert made.proposals == ("p1",)
    assert made.call["kind"] == "decided"


def test_system_calls_are_listed() -> None:
    observed = {
        "event_id": "e5",
        "kind": "observed",
        "time": 100.0,
        "detail": {
            "phase": "call",
            "observations": [
                {"capability": "fs.read", "action": "open", "path": "/etc/passwd", "count": 3, "evidence": "openat(…)"},
                {"capability": "net.connect", "action": "connect", "peer": "192.0.2.1:443", "error": "ECONNREFUSED"},
                {"capability": "proc.exec", "action": "exec", "argv": ["sh", "-c", "id"]},
                "odd",
            ],
        },
    }
    (step,) = timeline(entries(observed)).steps
    assert step.seen == (
        Seen("fs.read", "open /etc/passwd", 3, "openat(…)"),
        Seen("net.connect", "connect 192.0.2.1:443 (ECONNREFUSED)", 1, ""),
        Seen("proc.exec", "exec sh -c id", 1, ""),
    )
    assert dict(step.facts) == {"Phase": "call"}


def test_how_it_ended() -> None:
    ended = {"event_id": "e6", "kind": "completed", "time": 1.0, "outcome": "tool_error", "is_error": True}
    fine = {"event_id": "e7", "kind": "completed", "time": 1.0, "outcome": "done", "is_error": False}
    assert [step.tone for step in timeline(entries(ended, fine)).steps] == ["deny", "allow"]
