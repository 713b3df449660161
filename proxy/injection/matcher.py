"""Searches a text for all signals in one pass. Pure.

Compiling takes seconds, so it is done once for a process, when a policy first asks for it, and can be cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.injection.signals import SIGNALS, SPACED, Signal
from proxy.redact.detectors import compile_bytes
from proxy.redact.hyperscan_db import AVAILABLE, PatternSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.redact.hyperscan_db import DatabaseCache

type Found = list[tuple[Signal, int]]
"""Signals, each with the offset where it ends."""


_SEARCHES: Final[dict[str, Callable[[bytes], Found]]] = {}


def prepare(cache: DatabaseCache | None = None) -> None:
    """Compile the patterns, or load them from `cache`, so that no call has to wait for that."""
    if not _SEARCHES:
        spaced = _searching(SPACED, cache)
        _SEARCHES.update(signals=_searching(SIGNALS, cache), spaced=spaced)


def find_signals(data: bytes) -> Found:
    """Return the signals in a text."""
    prepare()
    return _SEARCHES["signals"](data)


def find_spaced(letters: bytes) -> Found:
    """Return the signals in letters that were spelt out one by one."""
    prepare()
    return _SEARCHES["spaced"](letters)


def _searching(signals: Sequence[Signal], cache: DatabaseCache | None) -> Callable[[bytes], Found]:
    if not AVAILABLE:
        return _searching_one_by_one(signals)
    patterns = PatternSet([signal.pattern for signal in signals], cache, every_match=True)
    return lambda data: [(signals[index], end) for index, end in patterns.matches(data)]


def _searching_one_by_one(signals: Sequence[Signal]) -> Callable[[bytes], Found]:
    compiled = [(signal, compile_bytes(signal.pattern)) for signal in signals]
    return lambda data: [(signal, match.end()) for signal, regex in compiled for match in regex.finditer(data)]
