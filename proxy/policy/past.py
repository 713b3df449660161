"""What came before, where no store tells: nothing, or what a replay has decided so far. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.flows import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Call


class Past:
    """A `flows.History` that is filled by hand."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._marks: list[Mark] = []

    def add(self, call: Call, call_id: str, labels: Sequence[str]) -> None:
        """Remember that a call brought labels, at the time that it is now."""
        named = {"agent": call.agent, "call_id": call_id, "server": call.server, "tool": call.tool}
        self._marks.append(Mark(**named, labels=tuple(labels), at=self.now, expires_at=self.now))  # type: ignore[arg-type]

    def latest(self, labels: frozenset[str], within: float) -> Mark | None:
        """Return the newest mark with one of `labels` that is not older than `within` seconds."""
        marks = (mark for mark in reversed(self._marks) if mark.at >= self.now - within)
        return next((mark for mark in marks if not labels.isdisjoint(mark.labels)), None)
