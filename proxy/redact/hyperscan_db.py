"""Expressions that hyperscan looks for, all in one pass: compiled, or loaded from where they are kept. Pure.

Where there is no hyperscan for the platform, `AVAILABLE` says so and nothing here may be used.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

try:
    import hyperscan
except ImportError:  # no wheel for this platform
    hyperscan = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Sequence

AVAILABLE: Final = hyperscan is not None


class DatabaseCache(Protocol):
    """Keeps compiled databases, which take a second to make and a millisecond to load."""

    def __hash__(self) -> int: ...

    def get(self, name: str) -> bytes | None:
        """Return what was put under `name`, if anything."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`, or don't."""
        ...


class Expressions:
    """Some expressions, each told of once, or `throughout` as often as it matches. Safe to share between threads."""

    def __init__(
        self, expressions: Sequence[str], cache: DatabaseCache | None = None, *, throughout: bool = False
    ) -> None:
        self._database = _kept(expressions, cache) if cache is not None else compile_all(expressions, throughout)
        self._local = threading.local()

    def found(self, data: bytes) -> list[int]:
        """Return the indexes of those that match."""
        found: list[int] = []
        self._database.scan(data, _note_index, 0, found, self._scratch())
        return found

    def ends(self, data: bytes) -> list[int]:
        """Return where matches end."""
        ends: list[int] = []
        self._database.scan(data, _note_end, 0, ends, self._scratch())
        return ends

    def first_end(self, data: bytes) -> int | None:
        """Return where the first match ends, and look no further; None where there is none."""
        ends: list[int] = []
        try:
            self._database.scan(data, _stop, 0, ends, self._scratch())
        except hyperscan.ScanTerminated:
            return ends[0]
        return None

    def any_in(self, data: bytes) -> bool:
        """Return whether one matches."""
        return self.first_end(data) is not None

    def _scratch(self) -> Any:
        # Scratch space serves one scan at a time, so each thread has its own.
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = hyperscan.Scratch(self._database)
        return scratch


def _note_index(index: int, _from: int, _to: int, _flags: int, found: list[int]) -> None:
    found.append(index)


def _note_end(_index: int, _from: int, to: int, _flags: int, ends: list[int]) -> None:
    ends.append(to)


def _stop(_index: int, _from: int, to: int, _flags: int, ends: list[int]) -> bool:
    ends.append(to)
    return True


def _kept(expressions: Sequence[str], cache: DatabaseCache) -> Any:
    version: str = hyperscan.__version__  # type: ignore[attr-defined]
    name = hashlib.sha256("\0".join([version, *expressions]).encode()).hexdigest()
    database = _load(cache.get(name))
    if database is None:
        database = compile_all(expressions)
        cache.put(name, hyperscan.dumpb(database))
    return database


def _load(stored: bytes | None) -> Any:
    if stored is None:
        return None
    try:
        return hyperscan.loadb(stored, hyperscan.HS_MODE_BLOCK)
    except (hyperscan.HyperscanError, ValueError):  # made by another version or for another processor
        return None


def refusal(expression: str) -> str | None:
    """Say why hyperscan will not look for `expression`; None where it will."""
    try:
        compile_all([expression])
    except hyperscan.error as error:
        return str(error)
    return None


def compile_all(expressions: Sequence[str], throughout: bool = False) -> Any:  # noqa: FBT001, FBT002
    """Compile `expressions` to one database."""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[expression.encode() for expression in expressions],
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=0 if throughout else hyperscan.HS_FLAG_SINGLEMATCH,
    )
    return database
