"""A call under way, passed on to another worker, is what the way back needs of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxy.core.model import Call, Finding, Hints, InFlightCall, Kind, Message, Redaction, Suppression
from proxy.core.proposals import RunningCommit
from proxy.gate.in_flight_json import from_json, to_json
from tests.support.gate_fixture import ALLOW, CONTEXT

REDACTION = Redaction(
    "scrub", ("secrets", "custom.x"), frozenset({"result"}), "deny", (Suppression("why", path="a.*"),)
)
DECISION = replace(ALLOW, matched=("scrub", "yes"), redactions=(REDACTION,), message="", shadow=())
WHOLE = InFlightCall(
    call_id="c1",
    message=Message(Kind.REQUEST, {"params": {"cursor": True}}, "tools/call", "7"),
    context=replace(CONTEXT, transport="sse"),
    traceparent="00-1-2-01",
    call=Call("tools/call", "mcp.example.com", "bot", "pay", hints=Hints(read_only=True)),
    decision=DECISION,
    started=1.0,
    forwarded=2.0,
    commit=RunningCommit("nonce", "c1", "p1"),
    said="sk_li",
    findings=(Finding("pii.email", "a", "f"),),
    begun=True,
    shared=True,
)


def test_what_is_passed_on_is_read_back() -> None:
    assert from_json(to_json(WHOLE), is_open=True) == WHOLE
    assert from_json(to_json(WHOLE), is_open=False) == replace(WHOLE, closed=True)
    bare = replace(WHOLE, commit=None, decision=replace(ALLOW, message=""), said="", findings=())
    assert from_json(to_json(bare), is_open=True) == bare
    enveloped = replace(WHOLE, message=replace(WHOLE.message, value={"jsonrpc": "2.0", "params": {}}))
    assert from_json(to_json(enveloped), is_open=True) == enveloped


def test_arguments_and_where_it_goes_are_not_passed_on() -> None:
    call = replace(WHOLE.call, arguments={"token": "hush"})
    text = to_json(replace(WHOLE, call=call, context=replace(WHOLE.context, target="/x?key=hush")))
    assert "hush" not in text


@pytest.mark.parametrize("text", ["{}", "[]", "no", json.dumps({"call_id": 1})])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        from_json(text, is_open=True)
