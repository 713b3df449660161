"""What a refusal says, whom it blames, and how it is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.model import Answer, Call, Decision, Kind, Message, Outcome, Reject
from proxy.gate.refusal import (
    CallState,
    egress_reason,
    may_leave,
    refused_verdict,
    sendable,
    sentence,
    withheld,
)
from proxy.wire.body import MessageBatch, RefusedBody, SingleMessage
from tests.support.gate_fixture import ALLOW, CONTEXT, DENY, call


def step(reading=None, decision=None) -> CallState:
    made = CallState("call-1", CONTEXT, 0.0)
    made.reading, made.decision = reading, decision
    made.message = reading.message if isinstance(reading, SingleMessage) else None
    return made


def single(kind: Kind = Kind.REQUEST, message_id: int | None = 7) -> SingleMessage:
    return SingleMessage(Message(kind, call(), "tools/call", message_id))


def test_a_denial_names_reason_rule_what_to_do_and_the_record():
    made = step(single(), DENY)
    made.call = Call("tools/call", "s", "a", "rm")
    denial = made.denial("policy_denied")
    for words in ("policy_denied", "tool 'rm'", "Rule no-danger: Not that tool.", "will not help", "call-1"):
        assert words in denial.text
    assert (denial.rule, denial.audit_id, denial.retryable) == ("no-danger", "call-1", False)


def test_a_rule_that_allows_is_not_blamed_and_one_that_blocks_is():
    made = step(single(), ALLOW)
    assert made.denial("internal_error").rule is None
    made.blocked_by = "scrub"
    assert made.denial("secret_found").rule == "scrub"


def test_a_request_is_answered_by_its_id_and_a_notification_by_nothing():
    answer = refused_verdict(step(single()), step().denial("policy_denied"))
    assert isinstance(answer, Answer)
    assert answer.replies[0]["id"] == 7
    silent = refused_verdict(step(single(Kind.NOTIFICATION, None)), step().denial("policy_denied"))
    assert silent == Answer((), status=202)


def test_every_request_of_a_batch_is_answered():
    values = (call(request_id=1), {"jsonrpc": "2.0", "method": "notifications/x"}, call(request_id="b"))
    answer = refused_verdict(step(MessageBatch(values)), step().denial("batch"))
    assert isinstance(answer, Answer)
    assert ([reply["id"] for reply in answer.replies], answer.batch) == ([1, "b"], True)


@pytest.mark.parametrize(
    ("reading", "kind"), [(RefusedBody("not_json", "x", 3), Answer), (RefusedBody("not_json", "x"), Reject)]
)
def test_bytes_are_answered_by_id_where_one_is_known(reading: RefusedBody, kind: type):
    assert isinstance(refused_verdict(step(reading), step().denial("not_json")), kind)


def test_a_destination_that_could_not_be_judged_is_a_failure_of_ours():
    denied = replace(CONTEXT, egress=Decision(Outcome.DENY, "egress_metadata"))
    failed = replace(CONTEXT, egress=Decision(Outcome.DENY, "internal_error"))
    assert (may_leave(CONTEXT), may_leave(denied)) == (True, False)
    assert (egress_reason(denied), egress_reason(failed)) == ("egress_denied", "internal_error")


def test_a_withheld_result_says_that_the_call_was_executed():
    assert "was executed" in withheld("secret_found", "tools/call", "call-1").text


def test_text_is_made_fit_to_send():
    assert sendable("a\udcffb") == "a?b"
    assert (sentence("what happened"), sentence("Done.")) == ("What happened.", "Done.")
