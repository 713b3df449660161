from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.telemetry.exported_event import UNSAFE
from proxy.telemetry.ocsf import API_ACTIVITY, DETECTION_FINDING, ocsf_event, ocsf_line
from tests.support.ocsf_check import problems
from tests.support.telemetry_events import (
    CALL,
    COMPLETED,
    DENIED,
    FINDING,
    HOSTILE,
    OPERATOR,
    PLAIN,
    TRACE_ID,
    exported,
    hostile,
)  # fmt: skip


@pytest.mark.parametrize("fields", PLAIN.values(), ids=PLAIN)
def test_every_event_is_valid(fields: dict[str, Any]) -> None:
    assert problems(ocsf_event(exported(fields, with_arguments=True))) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_stays_one_line_and_valid(text: str) -> None:
    line = ocsf_line(exported(hostile(text), with_arguments=True))
    assert line.splitlines() == [line]
    assert not UNSAFE.search(line)
    assert problems(json.loads(line)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"class_uid": 1}, "class_uid"),
        ({"actor": {}}, "at least one"),
        ({"api": {}}, "operation: required"),
        ({"severity_id": 7}, "none of"),
        ({"severity": "Fatal"}, "is not 'Medium'"),
        ({"time": 1.5}, "64 bits"),
        ({"is_alert": 1}, "no boolean"),
        ({"more": 1}, "unknown"),
        ({"type_uid": 1}, "type_uid"),
        ({"src_endpoint": None}, "no object"),
        ({"cloud": {}}, "unknown"),
    ],
)
def test_the_check_finds_what_is_wrong(change: dict[str, Any], problem: str) -> None:
    assert problem in str(problems(ocsf_event(exported(DENIED)) | change))


def test_a_call_is_api_activity_with_what_was_decided() -> None:
    event = ocsf_event(exported(DENIED))
    assert event["class_uid"] == API_ACTIVITY
    assert (event["action_id"], event["disposition_id"], event["status_id"]) == (2, 2, 2)
    assert event["firewall_rule"]["uid"] == "no-system-paths"
    assert event["trace"] == {"uid": TRACE_ID}
    assert event["metadata"]["correlation_uid"] == CALL["call_id"]
    assert event["message_context"] == {
        "ai_role_id": 3, "ai_role": "Tool", "name": "read_file", "service": {"name": "files.example:8443"},
    }  # fmt: skip
    assert ocsf_event(exported(COMPLETED))["duration"] == 250


def test_what_was_found_is_a_finding_and_an_alert() -> None:
    event = ocsf_event(exported(FINDING))
    assert (event["class_uid"], event["is_alert"]) == (DETECTION_FINDING, True)
    assert event["evidences"][0]["data"]["detail"]["sign"] == "override"


def test_an_operators_act_names_the_operator() -> None:
    assert ocsf_event(exported(OPERATOR))["actor"]["user"]["name"] == "eve"


def test_arguments_are_there_only_by_choice() -> None:
    assert "data" not in ocsf_event(exported(DENIED))["api"]["request"]
    assert ocsf_event(exported(DENIED, with_arguments=True))["api"]["request"]["data"] == {"path": "/etc/hosts"}
