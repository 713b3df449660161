"""What client, server and audit trail say together of one call; tests/commands/test_doctor.py makes a real one."""

from __future__ import annotations

import dataclasses
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Settings
from proxy.core.event import CallRecord
from proxy.doctor.mcp_call import judge, way_through
from proxy.errors import InterlockError

FIELDS: dict[str, Any] = {field.name: None for field in dataclasses.fields(CallRecord)}
ALLOWED = CallRecord(**{**FIELDS, "call_id": "c", "decision": "allow", "reason": "default_allow"})
DENIED = CallRecord(**{**FIELDS, "call_id": "c", "decision": "deny", "rule": "no-doctors"})


@pytest.mark.parametrize(
    ("record", "arrived", "refused", "state", "said"),
    [
        (ALLOWED, 1, False, "ok", "allow (default_allow); recorded as c; it reached its server"),
        (DENIED, 0, True, "ok", "deny by no-doctors; recorded as c; it did not reach its server"),
        (None, 1, False, "fail", "no record"),
        (None, 0, True, "fail", "no record"),
        (DENIED, 1, True, "fail", "reached its server 1 times, and was refused"),
        (DENIED, 0, False, "fail", "and was answered"),
        (ALLOWED, 0, False, "fail", "reached its server 0 times"),
        (ALLOWED, 2, False, "fail", "reached its server 2 times"),
    ],
)
def test_all_three_must_agree(record: CallRecord | None, arrived: int, refused: bool, state: str, said: str) -> None:
    found = judge(record, arrived, refused=refused)
    assert found.state == state
    assert said in found.said


def test_a_call_that_fails_is_the_checks_failure(tmp_path: Path) -> None:
    def call(url: str, tool: str, arguments: dict[str, Any]) -> bool:
        raise InterlockError(f"{url} cannot be called")

    with pytest.raises(InterlockError, match="cannot be called"):
        list(way_through(Settings(state_dir=tmp_path), "agent", call))


def test_a_call_that_goes_around_the_proxy_is_found(tmp_path: Path) -> None:
    def call(url: str, tool: str, arguments: dict[str, Any]) -> bool:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        with urllib.request.urlopen(url, json.dumps(message).encode()) as answer:
            return "error" in json.load(answer)

    (found,) = way_through(Settings(state_dir=tmp_path), "agent", call)
    assert found.state == "fail"
    assert "reached its server, and the audit trail has no record" in found.said
