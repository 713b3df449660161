"""Collects observations into one record per call: repeated ones once with a count, within bounds. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.trace.attribute import AttributedObservation, Attribution

# Of each capability, so that many files read do not crowd out the one connection made. The rest is counted.
MAX_OF_KIND = 40
MAX_PAGES = 512
MAX_EVIDENCE = 240
MAX_WORDS = 32
MISSING = frozenset({"ENOENT", "ENOTDIR"})
# Actions that are repeated on the same target, reported as one.
SAME = {"write": "write", "truncate": "write", "open": "open"}


@dataclass(slots=True)
class CountedObservation:
    first: AttributedObservation
    count: int = 0


@dataclass(slots=True)
class CallRecord:
    entries: dict[tuple[str, str, str, str | None], CountedObservation] = field(default_factory=dict)
    room: Counter[str] = field(default_factory=Counter)
    more: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    began: float = 0.0


class ObservationLog:
    """Records by call id, or by phase for what belongs to no call, until they are closed."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, CallRecord] = OrderedDict()
        self.dropped = 0

    def take(self, seen: AttributedObservation) -> None:
        key = page_of(seen.attribution)
        page = self._pages.get(key)
        if page is None:
            if len(self._pages) >= MAX_PAGES:
                self.dropped += 1
                return
            page = self._pages[key] = CallRecord(began=seen.observation.time)
        _enter(page, seen)

    def names(self) -> list[str]:
        return list(self._pages)

    def began(self, name: str) -> float:
        return self._pages[name].began

    def close(self, name: str) -> JsonObject | None:
        """Remove a record and return it as JSON; None where nothing was observed."""
        page = self._pages.pop(name, None)
        return _shown(page) if page is not None else None


def page_of(attribution: Attribution) -> str:
    return attribution.calls[0] if attribution.calls else attribution.phase


def _enter(page: CallRecord, seen: AttributedObservation) -> None:
    what = seen.observation
    # Interpreters look for each module in many folders: counted, or they would fill the record.
    if what.capability == "fs.read" and what.error in MISSING:
        page.missing += 1
        return
    key = (what.capability, SAME.get(what.action, what.action), what.target, what.error)
    entry = page.entries.get(key)
    if entry is None:
        if page.room[what.capability] >= MAX_OF_KIND:
            page.more[what.capability] += 1
            return
        page.room[what.capability] += 1
        entry = page.entries[key] = CountedObservation(seen)
    entry.count += 1


def _shown(page: CallRecord) -> JsonObject:
    first = next(iter(page.entries.values()), None)
    shown: JsonObject = {
        "phase": first.first.attribution.phase if first else "call",
        "observations": [_entry(entry) for entry in page.entries.values()],
    }
    if page.more:
        shown["more"] = dict(page.more)
    if page.missing:
        shown["missing_files"] = page.missing
    return shown


def _entry(entry: CountedObservation) -> JsonObject:
    what, whose = entry.first.observation, entry.first.attribution
    shown: JsonObject = {
        "capability": str(what.capability),
        "action": what.action,
        "path": what.path,
        "peer": what.peer,
        "name": what.name,
        "argv": list(what.argv[:MAX_WORDS]) or None,
        "error": what.error,
        "count": entry.count,
        "pid": what.pid,
        "time": what.time,
        "evidence": what.line[:MAX_EVIDENCE],
    }
    if whose.phase == "call" and (whose.confidence < 1 or whose.late):
        shown |= {"confidence": round(whose.confidence, 3), "how": whose.how}
        shown |= {"candidates": list(whose.calls) if len(whose.calls) > 1 else None, "late": whose.late or None}
    return {name: value for name, value in shown.items() if value is not None}
