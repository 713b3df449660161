"""What the proxy answers in a server's place."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.model import Denial
from proxy.wire.mcp import HEADER_MISMATCH
from proxy.wire.refusal_messages import DENIAL_META, DENIED, refuse

DENIAL = Denial("policy_denied", "no", rule="r", audit_id="a", retryable=False)
DATA = {"reason": "policy_denied", "rule": "r", "audit_id": "a", "retryable": False}


@pytest.mark.parametrize("request_id", [0, 7, "7", ""])
def test_a_refused_tool_call_is_answered_with_a_result_that_is_an_error(request_id: Any) -> None:
    assert refuse(request_id, "tools/call", DENIAL, {"name": "t"}) == {
        "jsonrpc": "2.0",
        "id": request_id,
        "result": {
            "content": [{"type": "text", "text": "no"}],
            "isError": True,
            "resultType": "complete",
            "_meta": {DENIAL_META: DATA},
        },
    }


@pytest.mark.parametrize(
    ("method", "denial", "params"),
    [
        ("tools/list", DENIAL, None),
        (None, DENIAL, None),
        ("tools/call", Denial(**{**DATA, "text": "no", "respond": "error"}), {}),
        ("tools/call", DENIAL, {"name": "t", "task": {}}),
    ],
    ids=["another method", "unknown method", "respond: error", "task"],
)
def test_any_other_refusal_is_an_error_with_the_same_data(method: Any, denial: Denial, params: Any) -> None:
    assert refuse(1, method, denial, params)["error"] == {"code": DENIED, "message": "no", "data": DATA}


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_a_header_mismatch_has_the_protocols_own_code(method: str) -> None:
    answer = refuse(1, method, Denial("header_mismatch", "no"))
    assert answer["error"]["code"] == HEADER_MISMATCH == -32020


@pytest.mark.parametrize("params", [None, [], "x", {"task": None}])
def test_odd_parameters_do_not_change_the_form(params: Any) -> None:
    assert "result" in refuse(1, "tools/call", DENIAL, params)
