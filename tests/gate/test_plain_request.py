"""Requests that are not MCP go where policy lets them, without the secrets that it holds back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Context, Decision, Denial, Outcome, Pass, Redaction, Reject
from tests.support.gate_fixture import ALLOW, CONTEXT, World

SECRETS = Redaction("keep-in", ("secrets",), frozenset({"request"}), "deny")


def going(action: Any = "deny", **egress: Any) -> Context:
    decision = replace(ALLOW, redactions=(replace(SECRETS, action=action),), **egress)
    return replace(CONTEXT, egress=decision, target="/upload")


async def test_what_may_not_leave_is_refused_and_recorded() -> None:
    world = World()
    denied = replace(CONTEXT, egress=Decision(Outcome.DENY, "egress_metadata", rule="no-out"))
    verdict = await world.gate.plain_requests.decide(denied, None)
    assert isinstance(verdict, Reject)
    assert (verdict.status, verdict.denial.reason, verdict.denial.rule) == (403, "egress_denied", "no-out")
    assert [(event.kind, event.event_id) for event in world.events] == [("request_refused", verdict.denial.audit_id)]


@pytest.mark.parametrize(("action", "passes", "kind"), [("deny", False, "refused"), ("report", True, "reported")])
async def test_a_secret_is_refused_or_reported_as_the_rule_says(action: str, passes: bool, kind: str) -> None:
    world = World()
    carried = world.gate.plain_requests.scanner.look(going(action), [("X-Data", "secret")], b"body")
    verdict = await world.gate.plain_requests.decide(going(action), carried)
    assert isinstance(verdict, Pass) is passes
    assert [(event.kind, event.rule) for event in world.events] == [(f"request_{kind}", "keep-in")]


async def test_what_only_a_shadow_rule_objects_to_passes_and_is_recorded() -> None:
    world = World()
    context = replace(CONTEXT, egress=replace(ALLOW, shadow=("later",)))
    assert isinstance(await world.gate.plain_requests.decide(context, None), Pass)
    assert [(event.kind, event.decision, event.shadow_rules) for event in world.events] == [
        ("request_shadowed", "allow", ("later",))
    ]


def test_an_upload_is_refused_by_its_head_watched_or_left_alone() -> None:
    plain = World().gate.plain_requests
    assert isinstance(plain.watch_upload(going(), [("X-Data", "secret")], 100), Denial)
    watch = plain.watch_upload(going(), [("X-Data", "fine")], 100)
    assert watch is not None
    assert not isinstance(watch, Denial)
    assert plain.watch_upload(CONTEXT, [("X-Data", "secret")], 100) is None


def test_the_refusal_of_a_destination_names_the_event_that_records_it() -> None:
    world = World()
    denied = replace(CONTEXT, egress=Decision(Outcome.DENY, "internal_error"))
    denial = world.gate.plain_requests.refuse_egress("connection_refused", denied)
    assert (denial.reason, denial.audit_id) == ("internal_error", world.events[0].event_id)
