from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.sandbox.profile import SandboxProfile, binds_hosts
from proxy.sandbox.violations import Violation
from proxy.stdio.bound_hosts import NOT_LISTED, NOT_NAMED, BoundHosts, RefusedHosts

PROFILE = SandboxProfile.model_validate(
    {"network": "any", "tools": {"fetch*": {"network": "from arguments"}, "read": {"files": "from arguments"}}}
)

NUMBERS = itertools.count()


def call(tool: str | None, arguments: Any, method: str = "tools/call", *, closed: bool = False) -> Any:
    params = {"arguments": arguments} if method == "tools/call" else arguments
    message = SimpleNamespace(method=method, params=params, id=1)
    number = str(next(NUMBERS))
    return message, SimpleNamespace(call=SimpleNamespace(tool=tool), closed=closed, call_id=number)


def bound(calls: list[Any]) -> BoundHosts:
    made = BoundHosts(PROFILE)
    for message, in_flight in calls:
        made.request_sent(message, in_flight)
    return made


NAMED = call("fetch_page", {"url": "https://a.test/x"})


@pytest.mark.parametrize(
    ("calls", "reached"),
    [
        ([], set()),
        ([NAMED], {"a.test"}),
        ([call("fetch", {"url": "https://b.test"})], {"b.test"}),
        ([NAMED, call("fetch", {"url": "https://b.test"})], {"a.test", "b.test"}),
        ([call("fetch_page", {"url": "https://a.test/x"}, closed=True)], set()),
        ([call("other", {})], {"a.test", "b.test"}),
        ([call(None, {"uri": "https://a.test/"}, "resources/read")], {"a.test"}),
        ([call(None, {"uri": "https://a.test/"}, "tools/list")], set()),
        ([call("fetch", None)], set()),
    ],
)
def test_a_server_reaches_what_the_calls_in_flight_name(calls: list[Any], reached: set[str]) -> None:
    made = bound(calls)
    assert {host for host in ("a.test", "b.test") if made.allows(host, 443)} == reached


def test_a_call_that_was_answered_opens_nothing_any_more() -> None:
    message, in_flight = call("fetch", {"url": "https://a.test/"})
    made = bound([(message, in_flight)])
    assert made.allows("a.test", 443)
    in_flight.closed = True
    assert not made.allows("a.test", 443)


def test_a_notification_opens_nothing() -> None:
    message, in_flight = call("other", {})
    message.id = None
    assert not bound([(message, in_flight)]).allows("a.test", 443)


def test_a_refused_host_is_told_with_its_line() -> None:
    taken: list[tuple[Violation, Any]] = []
    refused = RefusedHosts(lambda *each: taken.append(each), lambda: [NAMED[1]], lambda host, _: host == "b.test")
    refused("b.test", 443)
    refused("c.test", 80)
    assert [(found.target, found.line) for found, _ in taken] == [("b.test:443", NOT_NAMED), ("c.test:80", NOT_LISTED)]
    assert taken[0][1] == [NAMED[1]]


def test_only_a_profile_that_says_so_binds_hosts() -> None:
    assert binds_hosts(PROFILE)
    assert not binds_hosts(SandboxProfile.model_validate({"tools": {"read": {"files": "from arguments"}}}))
