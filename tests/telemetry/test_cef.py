from __future__ import annotations

from typing import Any

import pytest

from proxy.telemetry.cef import cef_line
from tests.support.cef_parser import parse
from tests.support.telemetry_events import CALL, DENIED, HOSTILE, PLAIN, exported, hostile


@pytest.mark.parametrize("fields", PLAIN.values(), ids=PLAIN)
def test_every_event_is_read_back(fields: dict[str, Any]) -> None:
    event = exported(fields)
    header, extension = parse(cef_line(event))
    assert header[:3] == ["CEF:0", "mcp-interlock", "Interlock"]
    assert header[4] == event.kind
    assert extension["externalId"] == event.event_id
    assert extension["rt"] == str(round(event.time * 1000))
    assert {key.removesuffix("Label") for key in extension if key.endswith("Label")} <= set(extension)


# ArcSight's own examples of what has to be escaped, and what has not.
@pytest.mark.parametrize(
    ("tool", "written"),
    [
        (r"detected a \ in packet", r"cs1=detected a \\ in packet "),
        ("detected a = in packet", r"cs1=detected a \= in packet "),
        ("detected a | in packet", "cs1=detected a | in packet "),
        ("Detected a threat.\n No action needed.", r"cs1=Detected a threat.\n No action needed. "),
    ],
)
def test_values_are_escaped_as_arcsight_describes_it(tool: str, written: str) -> None:
    line = cef_line(exported(DENIED | {"tool": tool}))
    assert written in line
    assert parse(line)[1]["cs1"] == tool


def test_a_header_is_escaped_as_arcsight_describes_it() -> None:
    line = cef_line(exported(DENIED | {"kind": r"detected a | in \ message"}))
    assert r"|detected a \| in \\ message|" in line
    assert parse(line)[0][4] == r"detected a | in \ message"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_makes_no_field_and_no_line(text: str) -> None:
    line = cef_line(exported(hostile(text) | {"reason": "policy_denied"}, with_arguments=True))
    assert line.splitlines() == [line]
    header, extension = parse(line)
    assert len(header) == 7
    assert header[6] == "6"
    assert extension["act"] == "deny"
    assert extension["reason"] == "policy_denied"
    assert set(extension) <= {
        "rt", "externalId", "dvchost", "suser", "destinationServiceName", "requestMethod", "act", "reason", "outcome",
        "app", "in", "msg", *(f"c{kind}{n}{label}" for kind in "sn" for n in range(1, 7) for label in ("", "Label")),
    }  # fmt: skip
    line.encode()


def test_arguments_are_there_only_by_choice() -> None:
    assert "/etc/hosts" not in cef_line(exported(DENIED))
    assert parse(cef_line(exported(CALL, with_arguments=True)))[1]["cs5"] == '{"path":"/etc/hosts"}'
