"""One call while its conditions are evaluated: what was found, and what could not be judged. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.home import UNKNOWN_HOMES
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.flows import History
    from proxy.core.model import JsonObject

WRONG_TYPE: Final = "wrong_type"
AMBIGUOUS: Final = "ambiguous_value"

# Bounds on the work that one call can cause; what exceeds them is ambiguous, so it is denied.
MAX_NODES = 200_000
MAX_VALUES = 10_000
MAX_EMBEDDED = 4


class Trouble(NamedTuple):
    """Why a value cannot be judged: a reason code and a description."""

    reason: str
    detail: str


class Selection(NamedTuple):
    """What an `arg` path found: `exact` under the very names, `loose` what a lax server would also take."""

    exact: tuple[Any, ...]
    loose: tuple[Any, ...]
    trouble: Trouble | None = None


# The one selection without any value; callers compare by identity, which is cheap.
NOTHING: Final = Selection((), (), None)


@dataclass(slots=True, eq=False)
class EvalContext:
    """One call being evaluated: its arguments, its tool, and what was already computed about them.

    `homes` are the folders that `~` may stand for on the server. `guess` is the answer of
    a condition that cannot be judged (bit 0: may match, bit 1: must match); `unknown` is
    the last trouble met.
    """

    arguments: JsonObject
    tool: str = ""
    homes: tuple[str, ...] = UNKNOWN_HOMES
    memo: dict[str, Any] = field(default_factory=dict[str, Any])
    guess: int = 1
    unknown: Trouble | None = None
    history: History | None = None
    """What the agent did and read before; None where nobody asked for it."""
    _names: Mapping[str, Sequence[str]] | None = None

    def names(self, folded: str) -> Sequence[str]:
        """Return the arguments whose names fold to `folded`; all are folded once per call."""
        if self._names is None:
            self._names = fold_names(self.arguments)
        return self._names.get(folded, ())

    def give_up(self, trouble: Trouble) -> int:
        """Record why a condition cannot be judged and return the guess."""
        self.unknown = trouble
        return self.guess

    def take_trouble(self) -> Trouble | None:
        """Return the last trouble met, and forget it."""
        trouble, self.unknown = self.unknown, None
        return trouble


def fold_names(value: dict[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return the names of an object by their folded form."""
    names = tuple(value.keys())  # raises where `value` is no object, which makes the rule an error
    return _group_short(names) if sum(map(len, names)) <= _SHORT_NAMES else _group_any(names)


def _group_any(names: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(fold_key(name), []).append(name)
    return alike


# Calls of one tool have the same names again and again. Long names are not cached, so that
# an agent cannot fill the memory with them.
_SHORT_NAMES: Final = 512
_group_short = lru_cache(maxsize=1024)(_group_any)


def fold_key(key: str) -> str:
    """Return the form that the spellings of one key share: `filePath`, `file_path` and `FILE-PATH`."""
    return _fold_short(key) if len(key) <= 64 else _fold_any(key)


def _fold_any(key: str) -> str:
    # Decoders that match field names loosely also take filePath for file_path.
    return fold(key).replace("_", "").replace("-", "") or key


_fold_short = lru_cache(maxsize=4096)(_fold_any)
