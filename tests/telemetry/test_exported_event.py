from __future__ import annotations

import json

import pytest

from proxy.core.event import LogEntry
from proxy.telemetry.exported_event import read_entry
from tests.support.telemetry_events import CALL, COMPLETED, DENIED, FINDING, GAP, OPERATOR, exported


def test_arguments_leave_only_by_choice() -> None:
    secretive = CALL | {"detail": CALL["detail"] | {"draft": {"path": "/etc/hosts"}}}
    assert "/etc/hosts" not in json.dumps(dict(exported(secretive).fields))
    assert exported(secretive).detail == CALL["detail"]
    assert exported(secretive, with_arguments=True).fields["arguments"] == {"path": "/etc/hosts"}


@pytest.mark.parametrize(
    ("method", "kept"), [("prompts/get", "name"), ("resources/read", "uri"), ("tools/call", None), ("initialize", None)]
)
def test_the_name_of_a_prompt_and_the_uri_of_a_resource_are_no_arguments(method: str, kept: str | None) -> None:
    event = exported(CALL | {"method": method, "arguments": {"name": "a", "uri": "b", "more": "c"}})
    assert event.fields.get("arguments") == ({kept: {"name": "a", "uri": "b"}[kept]} if kept else None)


def test_the_session_of_http_and_sse_is_a_digest() -> None:
    legacy, again = (exported(CALL | {"transport": "sse", "session": "/messages?id=1&token=secret"}) for _ in "ab")
    assert legacy.text("session") == again.text("session")
    assert "secret" not in str(legacy.fields)
    assert exported(CALL).text("session") == "session-1"


def test_a_finding_keeps_what_was_found() -> None:
    assert exported(FINDING).detail["text"] == "ignore all"


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        (CALL, "info"),
        (DENIED, "medium"),
        (COMPLETED, "info"),
        (COMPLETED | {"outcome": "http_503"}, "low"),
        (COMPLETED | {"is_error": True, "outcome": "tool_error"}, "low"),
        (FINDING, "high"),
        (GAP, "high"),
        (OPERATOR, "info"),
        ({"event_id": "x", "kind": "connection_refused", "time": 1}, "medium"),
    ],
)
def test_the_severity_says_whether_somebody_should_look(fields: dict[str, object], severity: str) -> None:
    assert exported(fields).severity == severity


def test_a_summary_is_one_sentence() -> None:
    assert exported(DENIED).summary == (
        "decided deny tools/call read_file on files.example:8443 by ada (policy_denied, no-system-paths)"
    )
    assert exported(OPERATOR).summary == "approved by eve"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"event_id": "a", "kind": "b"}',
        '{"event_id": 1, "kind": "b", "time": 1}',
        '{"event_id": "a", "kind": "", "time": 1}',
        '{"event_id": "a", "kind": "b", "time": "now"}',
        '{"event_id": "a", "kind": "b", "time": true}',
        '{"event_id": "a", "kind": "b", "time": -1}',
        '{"event_id": "a", "kind": "b", "time": 1e300}',
        '{"event_id": "a", "kind": "b", "time": NaN}',
        "[" * 200_000,
    ],
)
def test_what_is_no_event_is_told(body: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_entry(LogEntry(body))
