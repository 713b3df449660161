"""What a worker remembers for flows is bounded."""

from __future__ import annotations

import pytest

from proxy.gate import flow_memory
from proxy.gate.flow_memory import Histories, OwnWords
from tests.flows.test_history import PRINTER, TEXT, mark


def test_the_histories_of_those_that_called_longest_ago_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_memory, "MAX_AGENTS", 2)
    known = Histories(PRINTER.key_id)
    first = known.of("a")
    first.history.update([mark()], 1.0)
    known.of("b")
    assert known.of("a") is first
    known.of("c")
    known.trim()
    assert known.of("a") is first
    known.trim()
    assert known.of("b").history.cursor == 0
    monkeypatch.setattr(flow_memory, "MAX_RUNS", 1)
    known.of("d").history.update([mark()], 1.0)
    known.trim()
    assert known.of("a") is not first


def test_what_an_agent_said_itself_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    own, kept = OwnWords(), PRINTER.keep(TEXT, [(3, b"nj2291xk7")])
    assert own.without("a", kept, PRINTER) == kept
    own.add("a", b"xx" + TEXT + b"nj2291xk7")
    left = own.without("a", kept, PRINTER)
    assert (left.runs, left.values) == (frozenset(), frozenset())
    assert own.without("b", kept, PRINTER) == kept
    monkeypatch.setattr(flow_memory, "MAX_AGENTS", 1)
    own.add("b", b"other")
    assert own.without("a", kept, PRINTER) == kept
