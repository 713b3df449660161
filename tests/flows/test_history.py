"""What is remembered of one agent: kept up to date, bounded, and never less strict for its bounds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from proxy.core.flows import Cleared, Mark
from proxy.flows import history as module
from proxy.flows.fingerprint import Fingerprinter
from proxy.flows.history import AgentHistory, bounded, pack, unpack

PRINTER = Fingerprinter(b"k" * 32)
TEXT = b"thelaunchofthenewturbineisplannedforthethirdweekofoctober"


def mark(number: int = 1, **changes: Any) -> Mark:
    runs, values = pack(PRINTER.keep(TEXT, [(2, b"884213")]), PRINTER.key_id)
    plain = Mark(
        agent="bot", call_id=f"c{number}", server="s", tool="t", labels=("private",), at=0, expires_at=100,
        shingles=runs, values=values, number=number,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def history(*entries: Mark | Cleared, now: float = 1.0) -> AgentHistory:
    made = AgentHistory(PRINTER.key_id)
    made.update(entries, now)
    return made


def find(made: AgentHistory, plain: bytes = TEXT, kinds: tuple[int, ...] = (2,)) -> str | None:
    found = made.find(frozenset(PRINTER.every([plain], [plain])), 32, kinds, lambda _mark: True)
    return found.mark.call_id if found else None


def test_what_was_packed_is_unpacked() -> None:
    kept = PRINTER.keep(TEXT, [(2, b"884213")])
    assert unpack(mark(), PRINTER.key_id) == kept
    assert unpack(mark(), PRINTER.key_id + 1) is None


def test_data_is_found_until_it_expires_or_is_cleared() -> None:
    made = history(mark())
    assert find(made) == "c1"
    assert find(made, b"884213") == "c1"
    assert find(made, b"884213", ()) is None, "a kind that the flow does not ask for"
    made.update([Cleared(2, "other")], 2.0)
    assert find(made) == "c1"
    made.update([Cleared(3, "private")], 3.0)
    assert find(made) is None
    made.update([mark(4)], 4.0)
    assert (find(made), made.cursor) == ("c4", 4)
    made.update([], 100.0)
    assert (find(made), made.marks) == (None, ())


def test_the_newest_within_the_time_counts() -> None:
    made = history(mark(1, at=0), mark(2, at=50, labels=("secret",)), now=60)
    assert made.latest(frozenset({"private", "secret"}), 100) == mark(2, at=50, labels=("secret",))
    assert made.latest(frozenset({"private"}), 59) is None


def test_a_whole_page_takes_the_place_of_one_on_its_way() -> None:
    made = history(mark(1, call_id="p", shingles=b"", values=b"", complete=False))
    made.update([mark(2, call_id="p")], 2.0)
    assert [each.number for each in made.marks] == [2]
    made.update([mark(3, call_id="p", complete=False)], 3.0)
    assert len(made.marks) == 2


def test_marks_of_another_key_count_as_unread() -> None:
    runs, values = pack(Fingerprinter(b"o" * 32).keep(TEXT), 7)
    made = history(mark(shingles=runs, values=values))
    assert [(each.complete, each.shingles) for each in made.marks] == [(False, b"")]


def test_past_the_bounds_labels_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MARKS", 3)
    left = bounded([mark(number, labels=("a",) if number < 3 else ("b",)) for number in range(1, 7)])
    assert [(each.number, each.complete) for each in left] == [(2, False), (3, False), (4, True), (5, True), (6, True)]
    monkeypatch.setattr(module, "MAX_RUNS", (len(mark().shingles) + len(mark().values)) // 8)
    assert [each.complete for each in bounded([mark(1), mark(2)])] == [False, True]
    made = history(*(mark(number) for number in range(1, 9)))
    assert made.latest(frozenset({"private"}), 10) is not None


def test_broken_fingerprints_raise() -> None:
    with pytest.raises(ValueError, match="bytes"):
        history(mark(shingles=b"123"))
