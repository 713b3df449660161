"""What one agent has read, in memory: its live marks, and an index of their fingerprints. Pure.

Kept up to date with the store entry by entry. Bounded: past `MAX_RUNS` fingerprints the oldest marks lose theirs, and
count as marks whose fingerprints do not cover all of the result.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from proxy.core.flows import Cleared, FlowEntry, Mark
from proxy.flows.fingerprint import MAX_KINDS, Kept, runs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

MAX_RUNS: Final = 1 << 16  # fingerprints of one agent
MAX_MARKS: Final = 1024


def pack(kept: Kept, key_id: int) -> tuple[bytes, bytes]:
    """Return the fingerprints as bytes: runs, behind the id of the key that made them, and values."""
    runs = array("Q", [key_id, *sorted(kept.runs)])
    return runs.tobytes(), array("Q", [end for pair in kept.values for end in pair]).tobytes()


def unpack(mark: Mark, key_id: int) -> Kept | None:
    """Return the fingerprints of a mark, None where another key made them. Raises ValueError where they are none."""
    runs, ends = array("Q"), array("Q")
    runs.frombytes(mark.shingles)
    ends.frombytes(mark.values)
    if runs and runs[0] != key_id:
        return None
    return Kept(frozenset(runs[1:]), frozenset(zip(ends[::2], ends[1::2], strict=True)), mark.complete)


@dataclass(frozen=True, slots=True)
class Found:
    """The mark whose data was found again, and by how many runs and values."""

    mark: Mark
    runs: int = 0
    values: int = 0


class AgentHistory:
    """An `interfaces.History` of one agent. Changed on the event loop only; threads may read it meanwhile."""

    def __init__(self, key_id: int) -> None:
        self._key_id = key_id
        self.cursor = 0
        self.marks: tuple[Mark, ...] = ()  # oldest first; replaced, never changed
        self.now = 0.0
        self.runs = 0  # fingerprints in memory
        # By number: a mark has many bytes to hash.
        self._numbered: dict[int, Mark] = {}
        self._next_expiry = 0.0
        self._known: set[int] = set()  # every fingerprint of a run, and the first of every value
        self._of_run: dict[int, tuple[int, ...]] = {}
        self._of_value: dict[int, tuple[tuple[int, int], ...]] = {}

    def update(self, entries: Sequence[FlowEntry], now: float) -> None:
        """Take what is new in the store, and drop what has expired. Raises ValueError for what is no mark."""
        self.now = now
        if not entries and now < self._next_expiry:
            return
        marks, before = list(self.marks), len(self.marks)
        added, cleared = list[Mark](), False
        for given in entries:
            if given.number <= self.cursor:
                continue  # two calls at once have read the same
            # What a replica with another key has fingerprinted cannot be looked for.
            foreign = isinstance(given, Mark) and given.shingles and unpack(given, self._key_id) is None
            entry = _bare(given) if isinstance(given, Mark) and foreign else given
            self.cursor = max(self.cursor, entry.number)
            if isinstance(entry, Cleared):
                marks, cleared = [mark for mark in marks if not is_cleared(mark, entry)], True
                added = [mark for mark in added if not is_cleared(mark, entry)]
            else:
                replaced = [mark for mark in marks if supersedes(entry, mark)]
                if replaced:
                    marks, cleared = [mark for mark in marks if mark not in replaced], True
                marks.append(entry)
                added.append(entry)
        alive = [mark for mark in marks if mark.expires_at > now]
        over = sum(len(mark.shingles) + len(mark.values) for mark in alive) // 8 > MAX_RUNS or len(alive) > MAX_MARKS
        if cleared or over or len(alive) != before + len(added):
            self._rebuild(bounded(alive))
        elif added:
            self.marks = tuple(alive)
            for mark in added:
                self._index(mark)
        self._next_expiry = min((mark.expires_at for mark in self.marks), default=inf)

    def _rebuild(self, marks: Iterable[Mark]) -> None:
        # In place of the old ones, not in them: a thread may be looking something up.
        self._known, self._of_run, self._of_value, self._numbered, self.runs = set(), {}, {}, {}, 0
        self.marks = tuple(marks)
        for mark in self.marks:
            self._index(mark)

    def _index(self, mark: Mark) -> None:
        kept, number = unpack(mark, self._key_id), mark.number
        assert kept is not None
        self._numbered[number] = mark
        self.runs += len(kept.runs) + 2 * len(kept.values)
        self._known.update(kept.runs, [first for first, _ in kept.values])
        for run in kept.runs:
            self._of_run[run] = (*self._of_run.get(run, ()), number)
        for first, last in kept.values:
            self._of_value[first] = (*self._of_value.get(first, ()), (last, number))

    def latest(self, labels: frozenset[str], within: float) -> Mark | None:
        """Return the newest mark with one of `labels` that is not older than `within` seconds."""
        return next(self.live(labels, within), None)

    def live(self, labels: frozenset[str], within: float) -> Iterator[Mark]:
        """Yield the marks with one of `labels` that are not older than `within` seconds, newest first."""
        earliest = self.now - within
        for mark in reversed(self.marks):
            if mark.at >= earliest and not labels.isdisjoint(mark.labels):
                yield mark

    @property
    def has_prints(self) -> bool:
        """Whether there is any fingerprint to look for."""
        return bool(self._of_run or self._of_value)

    def find(
        self, prints: Collection[int], run: int, kinds: Collection[int], counts: Callable[[Mark], bool]
    ) -> Found | None:
        """Return the mark, of those that count, whose data is most of what goes out; None where there is too little.

        `run` is how many characters in a row make it the same data; one value of one of `kinds` is enough.
        """
        runs, values = Counter[int](), Counter[int]()
        known, of_run, of_value, numbered = self._known, self._of_run, self._of_value, self._numbered
        # Nearly nothing of what goes out is found, so the search is one set operation, the rest for what is left.
        if not (hits := known.intersection(prints)):
            return None
        for each in hits:
            runs.update(of_run.get(each, ()))
        if kinds and (firsts := [each for each in hits if each in of_value]):
            fitting = [end for first in firsts for end in of_value[first] if end[0] % MAX_KINDS in kinds]
            # The kind has the place of the lowest bits: whichever these were, it is the same value.
            wanted = {last & -MAX_KINDS | bits for last, _ in fitting for bits in range(MAX_KINDS)}
            ends = {each & -MAX_KINDS for each in wanted.intersection(prints)}
            values.update(number for last, number in fitting if last & -MAX_KINDS in ends)
        least = runs_in(run)
        found = [
            Found(mark, runs[number], values[number])
            for number in {**runs, **values}
            if (runs[number] >= least or values[number]) and counts(mark := numbered[number])
        ]
        return max(found, key=lambda each: (each.runs, each.values, each.mark.at), default=None)


def is_cleared(mark: Mark, cleared: Cleared) -> bool:
    """Return whether a person has cleared a mark."""
    return mark.number <= cleared.number and (cleared.label is None or cleared.label in mark.labels)


def supersedes(mark: Mark, other: Mark) -> bool:
    """Return whether a mark takes the place of one that was made while its page was still on its way."""
    return mark.complete and not other.complete and mark.call_id == other.call_id and mark.labels == other.labels


def bounded(marks: list[Mark]) -> list[Mark]:
    """Return the marks with no more fingerprints than an agent may have: the oldest lose theirs.

    Of the oldest of too many, the newest with the same labels stands for all of them.
    """
    left, kept = MAX_RUNS, list[Mark]()
    for mark in reversed(marks[-MAX_MARKS:]):
        left -= (len(mark.shingles) + len(mark.values)) // 8
        kept.append(mark if left >= 0 else _bare(mark))
    merged = {mark.labels: _bare(mark) for mark in marks[:-MAX_MARKS]}
    return [*merged.values(), *reversed(kept)]


def _bare(mark: Mark) -> Mark:
    return replace(mark, shingles=b"", values=b"", complete=False)
