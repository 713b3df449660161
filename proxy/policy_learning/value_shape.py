"""The shape of the values that were seen at one place of a tool's arguments, in bounded memory. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.policy.views import kind_of
from proxy.policy_learning.text_summary import MASK, TextSummary

MAX_KEYS: Final = 100
MAX_DEPTH: Final = 6


@dataclass(slots=True)
class Shape:
    """What was seen at one place: which kinds of values, and what those of each kind have in common.

    `open_keys` says that the object's members are not a fixed set: there were too many, or their names are masked.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    text: TextSummary = field(default_factory=TextSummary)
    low: float | None = None
    high: float | None = None
    whole_numbers: bool = True
    booleans: set[bool] = field(default_factory=set)
    longest: int = 0
    empty: bool = False
    element: Shape | None = None
    members: dict[str, Shape] = field(default_factory=dict)
    open_keys: bool = False
    too_deep: bool = False

    @property
    def count(self) -> int:
        return self.kinds.total()

    def add(self, value: Any, depth: int = 0) -> None:
        kind = kind_of(value)
        self.kinds[kind] += 1
        if depth > MAX_DEPTH:
            self.too_deep = True
        elif kind == "string":
            self.text.add(value)
        elif kind == "boolean":
            self.booleans.add(value)
        elif kind == "number":
            self._add_number(value)
        elif kind == "array":
            self._add_array(value, depth)
        elif kind == "object":
            self._add_object(value, depth)

    def _add_number(self, value: float) -> None:
        self.low = value if self.low is None else min(self.low, value)
        self.high = value if self.high is None else max(self.high, value)
        self.whole_numbers = self.whole_numbers and isinstance(value, int)

    def _add_array(self, value: list[Any], depth: int) -> None:
        self.longest = max(self.longest, len(value))
        self.empty = self.empty or not value
        if self.element is None:
            self.element = Shape()
        for one in value:
            self.element.add(one, depth + 1)

    def _add_object(self, value: dict[str, Any], depth: int) -> None:
        for key, one in value.items():
            if MASK.search(key) or (key not in self.members and len(self.members) >= MAX_KEYS):
                self.open_keys = True
                continue
            self.members.setdefault(key, Shape()).add(one, depth + 1)
