"""A compiled database is kept, used again, and made anew where it cannot be used."""

from __future__ import annotations

import pytest

from proxy.redact import builtin
from proxy.redact.hyperscan_db import PatternSet
from proxy.redact.scan import HyperscanScanner

pytest.importorskip("hyperscan", reason="no hyperscan for this platform: the keyword engine has nothing to keep")

ALL = builtin().select(("secrets", "pii"))
SECRET = b"token ghp_" + b"Zx8Kq2" * 6


class Shelf(dict[str, bytes]):
    """A cache in memory that counts what is put."""

    puts = 0

    def __hash__(self) -> int:
        return id(self)

    def put(self, name: str, data: bytes) -> None:
        self.puts += 1
        self[name] = data


def test_a_database_is_compiled_once_and_finds_the_same_when_loaded():
    shelf = Shelf()
    first = HyperscanScanner(builtin(), shelf).prescan(SECRET, ALL)
    compiled = shelf.puts
    second = HyperscanScanner(builtin(), shelf).prescan(SECRET, ALL)
    assert (shelf.puts, bool(first), first == second) == (compiled, True, True)
    assert compiled == len(shelf) > 1


def test_a_database_that_cannot_be_loaded_is_made_anew():
    shelf = Shelf()
    whole = HyperscanScanner(builtin(), shelf).prescan(SECRET, ALL)
    compiled = shelf.puts
    for name in shelf:
        shelf[name] = b"nonsense"
    assert HyperscanScanner(builtin(), shelf).prescan(SECRET, ALL) == whole
    # But for the clues, which a process has loaded once for all catalogs.
    assert shelf.puts == 2 * compiled - 1


def test_ends_are_told_in_order_where_they_are_few():
    patterns = PatternSet(["late", "a[bc]{2,3}"], every_match=True)
    data = b"abc abcb late"
    assert patterns.few_ends(data, 4) == [3, 7, 8, 13]
    assert patterns.few_ends(data, 3) is None
    assert patterns.few_ends(b"", 0) == []
