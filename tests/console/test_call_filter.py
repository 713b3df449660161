"""The filter of the list: from an address, to the store, and for events as they come."""

from __future__ import annotations

import pytest

from proxy.console.call_filter import CallFilter, write_cursor
from proxy.console.security import RefusedError
from proxy.core.event import Cursor

EVENT = {
    "decision": "deny",
    "agent": "bot",
    "server": "files.example.com",
    "tool": "read_file",
    "rule": "no-system-files",
    "reason": "policy_denied",
    "arguments": {"path": "/etc/Shadow", "deep": [{"x": 17}]},
}


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({}, True),
        ({"decision": "deny"}, True),
        ({"decision": "allow"}, False),
        ({"tool": "read_*"}, True),
        ({"tool": "*file"}, True),
        ({"tool": "read"}, False),
        ({"tool": "READ_FILE"}, False),
        ({"agent": "bot", "server": "*.example.com"}, True),
        ({"rule": "no-*-files"}, True),
        ({"rule": "no-[s]ystem-files"}, False),
        ({"text": "shadow"}, True),
        ({"text": "17"}, True),
        ({"text": "SYSTEM-files"}, True),
        ({"text": "passwd"}, False),
        ({"text": "%"}, False),
    ],
)
def test_an_event_fits(query: dict[str, str], fits: bool) -> None:
    assert CallFilter.read(query).fits(EVENT) is fits


@pytest.mark.parametrize(
    "query",
    [
        {"decision": "maybe"},
        {"since": "1y"},
        {"before": "now"},
        {"before": "1~../x"},
        {"before": "1e9~x"},
        {"tool": "x" * 201},
        {"text": "x" * 201},
    ],
)
def test_an_address_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(RefusedError) as refused:
        CallFilter.read(query)
    assert refused.value.status == 400


def test_a_cursor_is_exact_whatever_the_time() -> None:
    cursor = Cursor(1763418000.1234567, "01a1eba0-7199")
    assert CallFilter.read({"before": write_cursor(cursor)}).before == cursor


def test_the_store_is_asked_the_same() -> None:
    asked = CallFilter.read({"tool": "read_*", "since": "1h", "text": "x"}).query(10_000.0)
    assert (asked.tool, asked.since, asked.text, asked.agent) == ("read_*", 6400.0, "x", None)


def test_an_address_has_what_is_set() -> None:
    wanted = CallFilter.read({"tool": "a b", "text": "é&"})
    assert wanted.address() == "tool=a+b&text=%C3%A9%26"
    assert wanted.address(before="1~x") == "tool=a+b&text=%C3%A9%26&before=1~x"
    assert wanted.is_set
    assert not CallFilter().is_set
