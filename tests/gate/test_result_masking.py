"""What a server sends back is masked, in its answer and beside it, also where a secret comes in pieces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Call, InFlightCall, Kind, Message
from proxy.gate.result_masking import mask_beside, mask_result
from proxy.redact import Masker
from tests.support.gate_fixture import ALLOW, CONTEXT, MASK

SECRET = "ghp_" + "Zx8Kq2" * 6
MASKER = Masker(b"k" * 32, engine="re2")


def in_flight(action: Any = "mask") -> InFlightCall:
    decision = replace(ALLOW, redactions=(replace(MASK, action=action),))
    call = Call("tools/call", "s", "a", "t")
    return InFlightCall("c", Message(Kind.REQUEST, {}, "tools/call", 1), CONTEXT, call, decision, 1.0, 2.0)


def log(text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}}


def answer(*texts: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text} for text in texts]}}


def test_a_secret_in_the_answer_is_masked_withheld_or_reported():
    for action in ("mask", "deny", "report"):
        masked, found = mask_result(MASKER, in_flight(action), answer(SECRET))
        assert len(found) == 1
        assert (masked is None) is (action == "deny")
        assert (masked == answer(SECRET)) is (action == "report")


def test_a_secret_over_several_texts_of_one_answer_is_masked_in_each():
    masked, found = mask_result(MASKER, in_flight(), answer(SECRET[:10], SECRET[10:25], SECRET[25:]))
    assert {f"result.content[{index}].text" for index in range(3)} <= {finding.path for finding in found}
    assert not any(piece in json.dumps(masked) for piece in (SECRET[:10], SECRET[10:25], SECRET[25:]))


@pytest.mark.parametrize("action", ["mask", "deny"])
def test_a_secret_that_goes_on_in_the_next_message_is_masked_there_and_told_of(action: str):
    mine = in_flight(action)
    assert mask_beside(MASKER, mine, log(f"see {SECRET[:20]}")) == log(f"see {SECRET[:20]}")
    second = mask_beside(MASKER, mine, log(f"{SECRET[20:]} so"))
    assert SECRET[20:] not in json.dumps(second)
    assert (mine.begun, [finding.path for finding in mine.findings]) == (True, ["params.data"])


def test_a_secret_that_goes_on_in_the_answer_is_masked_there_and_told_of():
    mine = in_flight()
    mask_beside(MASKER, mine, log(SECRET[:20]))
    masked, found = mask_result(MASKER, mine, answer(SECRET[20:]))
    assert SECRET[20:] not in json.dumps(masked)
    assert (mine.begun, len(found)) == (True, 1)


def test_an_answer_that_holds_the_rest_of_a_secret_is_withheld_where_a_rule_denies():
    mine = in_flight("deny")
    mask_beside(MASKER, mine, log(SECRET[:20]))
    assert mask_result(MASKER, mine, answer(SECRET[20:]))[0] is None


def test_what_is_only_reported_passes_as_it_is_and_is_told_of():
    mine, message = in_flight("report"), log(SECRET)
    assert mask_beside(MASKER, mine, message) is message
    assert len(mine.findings) == 1


def test_without_a_rule_nothing_is_looked_for():
    mine = replace(in_flight(), decision=ALLOW)
    message = log(SECRET)
    assert mask_beside(MASKER, mine, message) is message
    assert mask_result(MASKER, mine, answer(SECRET)) == (answer(SECRET), ())
