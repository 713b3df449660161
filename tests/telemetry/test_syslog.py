from __future__ import annotations

from typing import Any

import pytest

from proxy.telemetry.cef import cef_line
from proxy.telemetry.syslog import BOM, ELEMENT, MAX_BYTES, cef_message, octet_counted, syslog_line
from tests.support import cef_parser
from tests.support.syslog_parser import parse, unframe
from tests.support.telemetry_events import CALL, DENIED, FINDING, HOSTILE, PLAIN, WRITER, exported, hostile

# Section 6.5 of the RFC.
RFC_EXAMPLES = [
    "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed for lonvick on /dev/pts/8",
    "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
    '<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"] \ufeffAn application event log entry...',  # noqa: E501
    '<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3"][examplePriority@32473 class="high"]',  # noqa: E501
]


@pytest.mark.parametrize("line", RFC_EXAMPLES)
def test_the_reader_reads_the_rfcs_examples(line: str) -> None:
    assert parse(line).facility in (4, 20)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "<192>1 - - - - - -",
        "<13>2 - - - - - -",
        "<13>1 - - - - - [x y",
        '<13>1 - - - - - [a b="c"d] x',
        "<13>1 now - - - - -",
    ],
)
def test_the_reader_refuses_what_the_rfc_refuses(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(line)


@pytest.mark.parametrize("fields", PLAIN.values(), ids=PLAIN)
def test_every_event_is_read_back(fields: dict[str, Any]) -> None:
    event = exported(fields)
    message = parse(syslog_line(event))
    assert (message.app, message.proc, message.msgid) == ("interlock", WRITER, event.kind)
    assert message.text == BOM + event.summary
    assert message.facility == 13
    assert message.data[ELEMENT]["event_id"] == event.event_id
    assert message.data[ELEMENT]["seq"] == "3"


@pytest.mark.parametrize(("fields", "severity"), [(CALL, 6), (DENIED, 4), (FINDING, 2)])
def test_the_severity(fields: dict[str, Any], severity: int) -> None:
    assert parse(syslog_line(exported(fields))).severity == severity


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_makes_no_element_and_no_message(text: str) -> None:
    event = exported(hostile(text) | {"reason": "policy_denied"}, with_arguments=True)
    line = syslog_line(event)
    assert line.splitlines() == [line]
    assert len(line.encode()) <= MAX_BYTES
    message = parse(line)
    assert set(message.data) == {ELEMENT}
    assert (message.data[ELEMENT]["decision"], message.data[ELEMENT]["reason"]) == ("deny", "policy_denied")
    assert unframe(octet_counted(line) * 2) == [line, line]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_cef_in_a_message_is_read_back(text: str) -> None:
    event = exported(hostile(text))
    line = cef_message(event, cef_line)
    assert len(line.encode()) <= MAX_BYTES
    message = parse(line)
    assert message.data == {}
    assert cef_parser.parse(message.text)[1]["act"] == "deny"


def test_arguments_are_there_only_by_choice() -> None:
    assert "/etc/hosts" not in syslog_line(exported(DENIED))
    assert (
        parse(syslog_line(exported(DENIED, with_arguments=True))).data[ELEMENT]["arguments"] == '{"path":"/etc/hosts"}'
    )
