"""Searches a text for all signals in one pass. Pure.

Compiling takes seconds, so it is done once for a process, when a policy first asks for it, and can be cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.injection.signals import SIGNALS, SPACED, Signal
from proxy.redact.decode import EncodingSigns
from proxy.redact.detectors import compile_bytes
from proxy.redact.encoded_spans import HEX_LINE, RUN
from proxy.redact.hyperscan_db import AVAILABLE, PatternSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.redact.hyperscan_db import DatabaseCache

type Found = list[tuple[Signal, int]]
"""Signals, each with the offset where it ends."""

# What shows that something may be encoded is looked for in the same pass, as signals without weight.
_HEX_LINES: Final = Signal("hex-lines", 0, HEX_LINE)
_RUNS: Final = Signal("base64-runs", 0, RUN)
_ENCODINGS: Final = (_HEX_LINES, _RUNS)

_SEARCHES: Final[dict[str, Callable[[bytes], Found]]] = {}


def prepare(cache: DatabaseCache | None = None) -> None:
    """Compile the patterns, or load them from `cache`, so that no call has to wait for that."""
    if not _SEARCHES:
        spaced = _searching(SPACED, (), cache)
        _SEARCHES.update(signals=_searching(SIGNALS, _ENCODINGS, cache), spaced=spaced)


def find_signals(data: bytes) -> Found:
    """Return the signals in a text, and the signs of encodings."""
    if not _SEARCHES:
        prepare()
    return _SEARCHES["signals"](data)


def encodings_among(found: Found) -> EncodingSigns:
    """Return the encodings that a text may hold, by what was found in it."""
    signals = {signal for signal, _ in found if not signal.weight}
    return EncodingSigns(hex_lines=_HEX_LINES in signals, base64_runs=_RUNS in signals, masks=False)


def find_spaced(letters: bytes) -> Found:
    """Return the signals in letters that were spelt out one by one."""
    prepare()
    return _SEARCHES["spaced"](letters)


def _searching(
    signals: Sequence[Signal], once: Sequence[Signal], cache: DatabaseCache | None
) -> Callable[[bytes], Found]:
    if not AVAILABLE:
        return _searching_one_by_one(signals, once)
    patterns = PatternSet(
        [signal.pattern for signal in signals], cache, every_match=True, once=[signal.pattern for signal in once]
    )
    numbered = (*signals, *once)
    return lambda data: [(numbered[index], end) for index, end in patterns.matches(data)]


def _searching_one_by_one(signals: Sequence[Signal], once: Sequence[Signal]) -> Callable[[bytes], Found]:
    many, few = [[(signal, compile_bytes(signal.pattern)) for signal in some] for some in (signals, once)]

    def search(data: bytes) -> Found:
        found = [(signal, match.end()) for signal, regex in many for match in regex.finditer(data)]
        return found + [(signal, match.end()) for signal, regex in few if (match := regex.search(data)) is not None]

    return search
