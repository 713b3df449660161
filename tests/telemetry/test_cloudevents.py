from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.telemetry.cloudevents import cloud_event, cloud_event_line
from proxy.telemetry.exported_event import UNSAFE
from tests.support.telemetry_events import CALL, DENIED, HOSTILE, PLAIN, TRACEPARENT, WRITER, exported, hostile

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "cloudevents.json").read_text())
CHECK = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)


@pytest.mark.parametrize("fields", PLAIN.values(), ids=PLAIN)
def test_every_event_is_valid(fields: dict[str, Any]) -> None:
    event = cloud_event(exported(fields))
    assert [*CHECK.iter_errors(event)] == []
    # What the schema leaves to the specification: names of attributes, and RFC 3339.
    assert all(re.fullmatch(r"[a-z0-9]{1,20}", name) for name in event)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", event["time"])
    assert all(isinstance(value, (str, int, bool)) for name, value in event.items() if name != "data")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_stays_one_line_and_valid(text: str) -> None:
    line = cloud_event_line(exported(hostile(text)))
    assert line.splitlines() == [line]
    assert not UNSAFE.search(line)
    event = json.loads(line)
    assert [*CHECK.iter_errors(event)] == []
    # Context attributes have no control characters (section "Type System").
    assert not re.search("[\x00-\x1f\x7f-\x9f]", "".join(str(value) for name, value in event.items() if name != "data"))


def test_id_and_source_name_the_event() -> None:
    event = cloud_event(exported(DENIED))
    assert (event["id"], event["source"]) == (DENIED["event_id"], f"/interlock/{WRITER}")
    assert event["type"] == "io.mcp-interlock.audit.decided"
    assert (event["subject"], event["traceparent"]) == (CALL["call_id"], TRACEPARENT)
    assert event["data"]["reason"] == "policy_denied"


def test_arguments_are_there_only_by_choice() -> None:
    assert "arguments" not in cloud_event(exported(DENIED))["data"]
    assert cloud_event(exported(DENIED, with_arguments=True))["data"]["arguments"] == {"path": "/etc/hosts"}
