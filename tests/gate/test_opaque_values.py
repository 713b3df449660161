"""Opaque values are put back where they may pass, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.gate.opaque_values import FROM_CLIENT, FROM_SERVER, restore
from proxy.redact.mask import Masker
from proxy.wire.mcp_exchange import RELATED_TASK

MASKER = Masker(b"a key for tests alone")
TOKEN = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0."
    "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)


def put_back(value: Any, places: Any = FROM_SERVER, *, may_pass: bool = True) -> tuple[Any, int]:
    masked, found = MASKER.mask(value, ["secrets"])
    assert found, "the test's value is no secret to the masker"
    restored, left = restore(value, masked, found, places, lambda _: may_pass)
    return restored, len(left)


@pytest.mark.parametrize(
    "value",
    [
        {"id": TOKEN, "result": {}},
        {"id": 1, "result": {"nextCursor": TOKEN}},
        {"id": 1, "result": {"requestState": TOKEN, "resultType": "input_required"}},
        {"id": 1, "result": {"taskId": TOKEN}},
        {"id": 1, "result": {"task": {"taskId": TOKEN}}},
        {"id": 1, "result": {"tasks": [{"taskId": "a"}, {"taskId": TOKEN}]}},
        {"id": 1, "result": {"_meta": {RELATED_TASK: {"taskId": TOKEN}}}},
        {"method": "notifications/progress", "params": {"progressToken": TOKEN}},
    ],
)
def test_what_a_server_issues_passes_as_it_is(value: Any) -> None:
    assert put_back(value) == (value, 0)


def test_a_secret_beside_an_opaque_value_stays_masked() -> None:
    value = {"id": 1, "result": {"nextCursor": TOKEN, "text": TOKEN}}
    restored, left = put_back(value)
    assert (restored["result"]["nextCursor"], left) == (TOKEN, 1)
    assert TOKEN not in restored["result"]["text"]


def test_what_may_not_pass_stays_masked() -> None:
    restored, left = put_back({"requestState": TOKEN, "cursor": TOKEN}, FROM_CLIENT, may_pass=False)
    assert TOKEN not in str(restored)
    assert left == 2


def test_the_value_that_was_masked_is_not_changed() -> None:
    value = {"id": 1, "result": {"nextCursor": TOKEN, "items": [1]}}
    masked, found = MASKER.mask(value, ["secrets"])
    before = str(masked)
    restore(value, masked, found, FROM_SERVER, lambda _: True)
    assert str(masked) == before


def test_a_mask_that_covers_more_than_the_value_stays() -> None:
    value = {"id": 1, "result": {"task": {"taskId": TOKEN}}}
    restored, _ = restore(value, {"id": 1, "result": "[masked]"}, (), FROM_SERVER, lambda _: True)
    assert restored == {"id": 1, "result": "[masked]"}
