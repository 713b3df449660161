"""The table of calls fits the terminal it is shown on, and is whole in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from proxy.audit.event import CallRecord
from proxy.commands.audit.call_table import LEAST_TELLING, print_calls
from tests.support.audit_fixture import NOW

ID = "0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44"
KNOWN = {
    "call_id": ID,
    "time": NOW,
    "agent": "build-bot",
    "server": "mcp.example.com",
    "tool": "transfer_funds",
    "decision": "deny",
    "reason": "policy_denied",
    "rule": "no-system-files",
    "outcome": "done",
    "total_ms": 12.5,
}
CALL = CallRecord(**dict.fromkeys(CallRecord.__dataclass_fields__) | KNOWN)  # type: ignore[arg-type]


def shown(width: int, *, terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_calls([CALL], console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_wide_terminal_and_a_pipe_have_every_column_whole() -> None:
    for text in (shown(200), shown(40, terminal=False)):
        header, row = text.splitlines()
        assert all(name in header for name in LEAST_TELLING)
        assert ID in row


@pytest.mark.parametrize(("width", "gone"), [(140, 0), (130, 1), (120, 2), (112, 3), (98, 4)])
def test_a_narrow_terminal_has_one_line_a_call_and_loses_what_tells_least_first(width: int, gone: int) -> None:
    header, row = shown(width).splitlines()
    assert [name in header.split() for name in LEAST_TELLING] == [False] * gone + [True] * (4 - gone)
    assert ID[:13] in row
    assert ID not in row
    assert all(word in row for word in ("transfer_funds", "deny", "policy_denied", "no-system-files"))
