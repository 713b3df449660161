"""Which halts `interlock resume` ends."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.commands.resume import choose
from proxy.errors import ConfigError

NOWHERE = {"agent": None, "server": None, "tool": None}
HALTS: list[dict[str, Any]] = [
    {"halt_id": "a", **NOWHERE, "agent": "bot"},
    {"halt_id": "b", **NOWHERE, "agent": "bot", "tool": "pay"},
    {"halt_id": "c", **NOWHERE},
]


def test_those_named_those_of_a_scope_or_all() -> None:
    assert choose(HALTS, ["b"], NOWHERE, every=False) == ["b"]
    assert choose(HALTS, [], NOWHERE, every=True) == ["a", "b", "c"]
    assert choose(HALTS, [], {**NOWHERE, "agent": "bot"}, every=False) == ["a"]
    assert choose(HALTS[:1], [], NOWHERE, every=False) == ["a"]


def test_where_it_is_not_clear_none_is_ended() -> None:
    for found, scope in ((HALTS, NOWHERE), ([], NOWHERE), (HALTS, {**NOWHERE, "server": "x"})):
        with pytest.raises(ConfigError):
            choose(found, [], scope, every=False)
