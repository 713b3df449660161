"""Sets of regular expressions that hyperscan searches for, all in one pass over the data. Pure.

Where there is no hyperscan for the platform, `AVAILABLE` is False and nothing else here may be used.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

try:
    import hyperscan
except ImportError:  # no wheel for this platform
    hyperscan = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Sequence

AVAILABLE: Final = hyperscan is not None


class DatabaseCache(Protocol):
    """Stores compiled databases, which take a second to compile and a millisecond to load."""

    def __hash__(self) -> int: ...

    def get(self, name: str) -> bytes | None:
        """Return what was put under `name`, if anything."""

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under `name`; may fail without raising."""


class PatternSet:
    """Compiled patterns. Each is reported once, or with `every_match` at each end of a match. Thread-safe.

    The patterns of `once` come after the others, and are reported once in any case.
    """

    def __init__(
        self,
        expressions: Sequence[str],
        cache: DatabaseCache | None = None,
        *,
        every_match: bool = False,
        once: Sequence[str] = (),
    ) -> None:
        many, single = (expressions, once) if every_match else ((), (*expressions, *once))
        self._database = compile_all(many, single) if cache is None else _cached(many, single, cache)
        self._local = threading.local()

    def found(self, data: bytes) -> list[int]:
        """Return the indexes of the patterns that match."""
        found: list[int] = []
        self._database.scan(data, _add_index, 0, found, self._scratch())
        return found

    def matches(self, data: bytes) -> list[tuple[int, int]]:
        """Return the index of each pattern that matches and the offset where the match ends."""
        found: list[tuple[int, int]] = []
        self._database.scan(data, _add_match, 0, found, self._scratch())
        return found

    def ends(self, data: bytes) -> list[int]:
        """Return the offsets where matches end."""
        ends: list[int] = []
        self._database.scan(data, _add_end, 0, ends, self._scratch())
        return ends

    def few_ends(self, data: bytes, most: int) -> list[int] | None:
        """Return the offsets where matches end, in order; None where there are more than `most`."""
        ends: list[int] = []
        try:
            self._database.scan(data, _add_few_ends, 0, (ends, most), self._scratch())
        except hyperscan.ScanTerminated:  # the callback stopped it
            return None
        return sorted(ends)  # hyperscan promises no order

    def first_end(self, data: bytes) -> int | None:
        """Return the offset where the first match ends; None where nothing matches."""
        ends: list[int] = []
        try:
            self._database.scan(data, _add_end_and_stop, 0, ends, self._scratch())
        except hyperscan.ScanTerminated:  # the callback stopped it
            return ends[0]
        return None

    def any_in(self, data: bytes) -> bool:
        return self.first_end(data) is not None

    def _scratch(self) -> Any:
        # Two scans that share scratch space overwrite each other's state, so each thread has its own.
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = hyperscan.Scratch(self._database)
        return scratch


# Callbacks are plain functions that take the list as context, so that a scan of a short text makes no closure.
def _add_index(index: int, _from: int, _to: int, _flags: int, found: list[int]) -> None:
    found.append(index)


def _add_match(index: int, _from: int, to: int, _flags: int, found: list[tuple[int, int]]) -> None:
    found.append((index, to))


def _add_end(_index: int, _from: int, to: int, _flags: int, ends: list[int]) -> None:
    ends.append(to)


def _add_end_and_stop(_index: int, _from: int, to: int, _flags: int, ends: list[int]) -> bool:
    ends.append(to)
    return True  # true ends the scan


def _add_few_ends(_index: int, _from: int, to: int, _flags: int, found: tuple[list[int], int]) -> bool:
    ends, most = found
    ends.append(to)
    return len(ends) > most


def _cached(many: Sequence[str], once: Sequence[str], cache: DatabaseCache) -> Any:
    database = load(many, once, cache)
    if database is None:
        database = compile_all(many, once)
        cache.put(_name(many, once), hyperscan.dumpb(database))
    return database


def load(many: Sequence[str], once: Sequence[str], cache: DatabaseCache) -> Any:
    """Return the database of these expressions; None where the cache has none that can be loaded."""
    stored = cache.get(_name(many, once))
    # One that cannot be loaded is damaged, or compiled for another processor.
    with suppress(hyperscan.HyperscanError, ValueError):
        return hyperscan.loadb(stored, hyperscan.HS_MODE_BLOCK) if stored else None
    return None


def _name(many: Sequence[str], once: Sequence[str]) -> str:
    # All that the database depends on, so a changed detector can never load the old patterns.
    version: str = hyperscan.__version__  # type: ignore[attr-defined]
    return hashlib.sha256("\0".join([version, str(len(many)), *many, *once]).encode()).hexdigest()


def refusal(expression: str) -> str | None:
    """Return why hyperscan refuses to compile `expression`; None where it compiles."""
    try:
        compile_all((), [expression])
    except hyperscan.error as error:
        return str(error)
    return None


def compile_all(many: Sequence[str], once: Sequence[str]) -> Any:
    """Compile to one database what is reported at each end of a match, and behind it what is reported once."""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    expressions = (*many, *once)
    database.compile(
        # No UTF-8 flag: hyperscan then matches byte by byte, as RE2 does in Latin-1 (`compile_bytes`). The two must
        # agree, or the pass that chooses the detectors to run would leave out one that RE2 would find something for.
        expressions=[expression.encode() for expression in expressions],
        ids=list(range(len(expressions))),
        elements=len(expressions),
        # To know which patterns match at all, one report of each is enough. Without the flag `letters` repeated
        # for megabytes would call back into Python at every byte.
        flags=[0] * len(many) + [hyperscan.HS_FLAG_SINGLEMATCH] * len(once),
    )
    return database
