"""What differs between two calls of a tool, argument by argument. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import Json

type Change = Literal["same", "changed", "added", "removed"]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One value in the arguments: where it is, what it was and what it is, as JSON; empty where there is none."""

    path: str
    before: str
    after: str
    change: Change


def diff(before: Json, after: Json) -> list[DiffLine]:
    """Return every value of both, in the order of `after`, and then what is gone."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    lines = [DiffLine(path, old.get(path, ""), value, _change(old.get(path), value)) for path, value in new.items()]
    return lines + [DiffLine(path, value, "", "removed") for path, value in old.items() if path not in new]


def _change(before: str | None, after: str) -> Change:
    if before is None:
        return "added"
    return "same" if before == after else "changed"


def _leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value that holds no other."""
    children: Any = ()
    if isinstance(value, dict):
        children = [(f"{path}.{_step(name)}" if path else _step(name), child) for name, child in value.items()]
    elif isinstance(value, list):
        children = [(f"{path}[{index}]", child) for index, child in enumerate(value)]
    if not children:
        # An empty object or list is a value as well.
        yield path or "(all)", json.dumps(value, ensure_ascii=False)
    for name, child in children:
        yield from _leaves(child, name)


def _step(name: str) -> str:
    # A name with a dot must not pass for two names.
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
