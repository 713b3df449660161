"""The bypass suite: no crafted request runs a denied tool, and every benign one of the same shape still works."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest

from tests.bypass.campaign import Report, applies, marker
from tests.bypass.cases import CASES
from tests.bypass.conftest import Interlocks
from tests.bypass.shot import Case, Route
from tests.bypass.targets import TARGETS, Target
from tests.support.raw_socket import Answer, parse_answers

# The first test of each campaign waits for all of its volleys.
pytestmark = pytest.mark.timeout(400)
DENIAL = "mcp-interlock/denial"
every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


def _ways(case: Case, proxied: Report) -> Iterator[tuple[Target, Route]]:
    """Every way through the proxy on which `case` was fired."""
    for target in TARGETS:
        for route in target.routes:
            if marker(case, "denied", target, route) in proxied.hits:
                yield target, route


def test_every_case_has_an_id_of_its_own() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids))


@every_case
def test_the_case_runs_the_tool_where_nothing_stands_before_a_server(case: Case, direct: Report) -> None:
    """The control: a case that no server falls for proves nothing, and says so in its row."""
    fell = [target.name for target in TARGETS if marker(case, "denied", target, "direct") in direct.executed]
    assert bool(fell) != bool(case.toothless), f"fell for it: {fell}; the row says: {case.toothless!r}"


def test_every_case_is_fired_on_every_way_that_could_let_it_through(direct: Report, proxied: Report) -> None:
    """At the lenient server on each of its ways, and wherever a server runs the tool when nothing stands before it."""
    for case in CASES:
        wanted = {
            (target, route)
            for target in TARGETS
            for route in target.routes
            if applies(case, route, target)
            and (target.lenient or marker(case, "denied", target, "direct") in direct.executed)
        }
        assert wanted, case.id
        assert wanted <= set(_ways(case, proxied)), case.id


@every_case
def test_the_denied_tool_is_not_executed(case: Case, proxied: Report) -> None:
    hits = {
        f"{target.name} by {route}": proxied.hits[mark].answer[:300]
        for target, route in _ways(case, proxied)
        if (mark := marker(case, "denied", target, route)) in proxied.executed
    }
    assert not hits, f"{case.tries}: executed on {hits}"


def test_nothing_forbidden_was_executed_at_all(proxied: Report) -> None:
    assert proxied.forbidden == []


@every_case
def test_the_denied_request_is_not_left_hanging(case: Case, proxied: Report) -> None:
    """An answer comes or the connection is closed; silence would be a client stuck for minutes."""
    slow = {
        f"{target.name} by {route}": hit.answer[:200]
        for target, route in _ways(case, proxied)
        if not case.hangs
        and (hit := proxied.hits[marker(case, "denied", target, route)]).seconds >= case.waits(route)
        and not parse_answers(hit.answer)
    }
    assert not slow, f"{case.tries}: no answer from {slow}"


runnable = [case for case in CASES if case.benign == "runs"]


@pytest.mark.parametrize("case", runnable, ids=[case.id for case in runnable])
def test_the_benign_call_of_the_same_shape_still_runs(case: Case, direct: Report, proxied: Report) -> None:
    """Wherever the server itself takes the shape, Interlock must let it through."""
    stopped = {
        f"{target.name} by {route}": proxied.hits[mark].answer[:600]
        for target, route in _ways(case, proxied)
        if marker(case, "benign", target, "direct") in direct.executed
        and (mark := marker(case, "benign", target, route)) not in proxied.executed
    }
    assert not stopped, f"{case.tries}: refused on {stopped}"


refused = [case for case in CASES if case.benign == "refused"]


@pytest.mark.parametrize("case", refused, ids=[case.id for case in refused])
def test_what_is_refused_whole_executes_nothing_benign_either(case: Case, proxied: Report) -> None:
    ran = [
        f"{target.name} by {route}"
        for target, route in _ways(case, proxied)
        if marker(case, "benign", target, route) in proxied.executed
    ]
    assert not ran, f"{case.tries}: ran on {ran}"


plain = [case for case in CASES if case.answer == "denial"]


@pytest.mark.parametrize("case", plain, ids=[case.id for case in plain])
def test_the_denial_says_what_why_and_which_record(case: Case, proxied: Report) -> None:
    rule = "no-danger" if case.call == "danger" else "no-system-files"
    for target, route in _ways(case, proxied):
        if target.opening == "sse":
            continue  # its answers arrive on the GET stream: tests/acceptance
        answers = parse_answers(proxied.hits[marker(case, "denied", target, route)].answer)
        assert answers, f"{target.name} by {route}: no answer"
        denial = _denial(answers[-1])
        if case.id.startswith("id-") and denial["reason"] == "id_in_use":
            continue  # a row with the same id was under way in this session: refused all the same
        assert denial["rule"] == rule, f"{target.name} by {route}: {denial}"
        assert denial["reason"]
        assert denial["audit_id"]
        assert denial["retryable"] is False


def _denial(answer: Answer) -> dict[str, object]:
    """Return the denial that a tools/call was answered with."""
    assert answer.status == 200, answer
    result = json.loads(answer.body)["result"]
    assert result["isError"] is True
    assert result["resultType"] == "complete"
    denial: dict[str, object] = result["_meta"][DENIAL]
    assert str(denial["reason"]) in result["content"][0]["text"]
    return denial


def test_every_denial_is_in_the_audit_log(interlocks: Interlocks, proxied: Report) -> None:
    calls = {event.get("call_id"): event for event in interlocks.regular.events()}
    case = next(case for case in CASES if case.id == "plain")
    target = next(target for target in TARGETS if target.name == "python-modern")
    answer = parse_answers(proxied.hits[marker(case, "denied", target, "regular")].answer)[0]
    event = calls[_denial(answer)["audit_id"]]
    assert (event["tool"], event["decision"], event["rule"]) == ("danger", "deny", "no-danger")


def test_every_request_in_a_batch_is_answered(proxied: Report) -> None:
    case = next(case for case in CASES if case.id == "batch-two")
    for target, route in _ways(case, proxied):
        if target.opening == "sse":
            continue  # its answers arrive on the GET stream: tests/acceptance
        mark = marker(case, "denied", target, route)
        number = zlib.crc32(mark.encode())
        answer = parse_answers(proxied.hits[mark].answer)[0]
        assert answer.status == 200
        entries = json.loads(answer.body)
        assert [entry["id"] for entry in entries] == [f"{number}-ping", number], f"{target.name} by {route}"
        assert all("error" in entry or entry["result"]["isError"] for entry in entries)
