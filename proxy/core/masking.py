"""What policy and redaction say to each other: suppressions, and the role of whoever knows detectors.

Pure: standard library only, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Suppression:
    """A finding that somebody has looked at and lets be.

    What is None narrows nothing; `detector` and `path` are globs.
    """

    reason: str
    detector: str | None = None
    path: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class DetectorProblem:
    """What is wrong with a detector as written, and in which of its fields."""

    field: tuple[str | int, ...]
    message: str


class KnownDetectors(Protocol):
    """Knows the detectors that are built in, and what makes a good one."""

    def knows(self, name: str, /) -> bool:
        """Return whether `name` is a family or the id of a detector."""
        ...

    def names(self) -> Iterable[str]:
        """Return every family and id."""
        ...

    def objections(self, raw: Mapping[str, Any]) -> Iterable[DetectorProblem]:
        """Say what is wrong with a detector that a policy brings; nothing where it is good."""
        ...
