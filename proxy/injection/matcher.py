"""Searches a text for all signals in one pass. Pure.

Compiling takes seconds, so it is done once for a process, when a policy first asks for it, and can be cached.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from proxy.injection.signals import SIGNALS, SPACED, Signal
from proxy.redact.detectors import compile_bytes
from proxy.redact.hyperscan_db import AVAILABLE, PatternSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.redact.hyperscan_db import DatabaseCache

type Found = list[tuple[Signal, int]]
"""Signals, each with the offset where it ends."""


@functools.cache
def matcher(cache: DatabaseCache | None = None) -> Callable[[bytes], Found]:
    """Return the search for signals in a text."""
    return _searching(SIGNALS, cache)


@functools.cache
def spaced_matcher(cache: DatabaseCache | None = None) -> Callable[[bytes], Found]:
    """Return the search for signals in letters that were spelt out one by one."""
    return _searching(SPACED, cache)


def _searching(signals: Sequence[Signal], cache: DatabaseCache | None) -> Callable[[bytes], Found]:
    if not AVAILABLE:
        return _searching_one_by_one(signals)
    patterns = PatternSet([signal.pattern for signal in signals], cache, every_match=True)
    return lambda data: [(signals[index], end) for index, end in patterns.matches(data)]


def _searching_one_by_one(signals: Sequence[Signal]) -> Callable[[bytes], Found]:
    compiled = [(signal, compile_bytes(signal.pattern)) for signal in signals]
    return lambda data: [(signal, match.end()) for signal, regex in compiled for match in regex.finditer(data)]


PREPARED: Final = [matcher, spaced_matcher]
