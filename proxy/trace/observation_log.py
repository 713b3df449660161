"""Collects observations into one record per call: repeated ones once with a count, within bounds. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import JsonObject
    from proxy.trace.attribute import AttributedObservation
    from proxy.trace.capability import Observation

# Of each capability, so that many files read do not crowd out the one connection made. The rest is counted.
MAX_OF_KIND = 40
MAX_RECORDS = 512
MAX_EVIDENCE = 240
MAX_WORDS = 32
MISSING = frozenset({"ENOENT", "ENOTDIR"})
# Actions that are repeated on the same target, reported as one.
SAME = {"write": "write", "truncate": "write", "open": "open"}


@dataclass(slots=True)
class CountedObservation:
    first: AttributedObservation
    count: int = 0

    def data(self) -> JsonObject:
        what, whose = self.first
        shown: JsonObject = {
            "capability": str(what.capability),
            **{name: getattr(what, name) for name in ("action", "path", "peer", "name")},
            "argv": list(what.argv[:MAX_WORDS]) or None,
            "error": what.error,
            "count": self.count,
            "pid": what.pid,
            "time": what.time,
            "evidence": what.line[:MAX_EVIDENCE],
        }
        if whose.phase == "call" and (whose.confidence < 1 or whose.late):
            shown |= {"confidence": round(whose.confidence, 3), "how": whose.how}
            shown |= {"candidates": list(whose.calls) if len(whose.calls) > 1 else None, "late": whose.late or None}
        return {name: value for name, value in shown.items() if value is not None}


def _is_absent(_: Observation) -> bool:
    return False


@dataclass(slots=True)
class ObservationRecord:
    entries: dict[tuple[str, str, str, str | None], CountedObservation] = field(default_factory=dict)
    stored: Counter[str] = field(default_factory=Counter)
    more: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    began: float = 0.0
    is_hidden: Callable[[Observation], bool] = _is_absent

    def take(self, seen: AttributedObservation) -> None:
        what = seen.observation
        # Interpreters look for each module in many folders: counted, or they would fill the record.
        if what.capability == "fs.read" and what.error in MISSING and not self.is_hidden(what):
            self.missing += 1
            return
        key = (what.capability, SAME.get(what.action, what.action), what.target, what.error)
        entry = self.entries.get(key)
        if entry is None:
            if self.stored[what.capability] >= MAX_OF_KIND:
                self.more[what.capability] += 1
                return
            self.stored[what.capability] += 1
            entry = self.entries[key] = CountedObservation(seen)
        entry.count += 1

    def data(self) -> JsonObject:
        phases = [entry.first.attribution.phase for entry in self.entries.values()]
        return {
            "phase": phases[0] if phases else "call",
            "observations": [entry.data() for entry in self.entries.values()],
            **({"more": dict(self.more)} if self.more else {}),
            **({"missing_files": self.missing} if self.missing else {}),
        }


class ObservationLog:
    """Records by call id, or by phase for what belongs to no call, until they are closed."""

    def __init__(self) -> None:
        self._records: OrderedDict[str, ObservationRecord] = OrderedDict()
        self.dropped = 0
        # Whether a file that a server did not find is there, and only out of its sight: such are recorded.
        self.is_hidden: Callable[[Observation], bool] = _is_absent

    def take(self, seen: AttributedObservation) -> None:
        key = seen.attribution.calls[0] if seen.attribution.calls else seen.attribution.phase
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= MAX_RECORDS:
                self.dropped += 1
                return
            record = self._records[key] = ObservationRecord(began=seen.observation.time, is_hidden=self.is_hidden)
        record.take(seen)

    def names(self, before: float = float("inf")) -> list[str]:
        return [name for name, record in self._records.items() if record.began < before]

    def close(self, name: str) -> JsonObject | None:
        """Remove a record and return it as JSON; None where nothing was observed."""
        record = self._records.pop(name, None)
        return record.data() if record is not None else None
