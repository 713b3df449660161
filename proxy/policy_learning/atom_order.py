"""Which answers of two operators on one argument exclude each other. Pure.

Only what follows from how operators judge is said here; two operators that nothing is said of may answer anything.
So a proof that rests on this may be missed, but is never wrong.
"""

from __future__ import annotations

import json
import operator
import posixpath
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.views import NO, YES

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy_learning.abstract_bits import Atom

_NUMBERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
# With these, a missing argument answers no. `not_equals` answers may.
_NEED_A_VALUE: Final = frozenset(
    (
        *("equals", "in", "starts_with", "ends_with", "contains", "matches", "gt", "gte", "lt", "lte", "type"),
        *("length", "only_keys", "path_under", "host_in", "url_scheme", "ip_class", "cidr", "command", "sql"),
    )
)


def excluded(first: Atom, second: Atom, bits: tuple[int, int]) -> bool:
    """Return whether two atoms cannot give these answers together."""
    if first[0] != second[0]:
        return False
    return _excluded(first, second, bits) or _excluded(second, first, bits[::-1])


def _excluded(first: Atom, second: Atom, bits: tuple[int, int]) -> bool:
    if first[1] == "exists" and second[1] == "exists":
        # `exists: false` is the negation of `exists: true`.
        return first[2] != second[2] and (bits[0] == YES) != (bits[1] == NO)
    if first[1] == "exists" and second[1] in _NEED_A_VALUE and _is_plain(first[0]):
        absent = bits[0] == (NO if first[2] == "true" else YES)
        return absent and bits[1] != NO
    if implies(first, second):
        return bits[0] & ~bits[1] != 0
    return _are_disjoint(first, second) and bits == (YES, YES)


def _is_plain(arg: str) -> bool:
    return arg.replace("_", "").isalnum() and arg.isascii() and arg != "arguments"


def implies(first: Atom, second: Atom) -> bool:
    """Return whether every value that the first one takes is one that the second takes, in each of its views."""
    one, other = json.loads(first[2]), json.loads(second[2])
    if first[1] in _NUMBERS and second[1] in _NUMBERS:
        return _number_implies(first[1], one, second[1], other)
    if first[1] in ("equals", "in") and second[1] in ("equals", "in"):
        return None not in (*_list(one), *_list(other)) and all(_is_in(value, _list(other)) for value in _list(one))
    if first[1] != second[1]:
        return False
    match first[1]:
        case "host_in" | "url_scheme" | "type" | "command" | "only_keys" | "ip_class" | "cidr" | "matches" | "contains":
            return set(_list(one)) <= set(_list(other))
        case "starts_with" | "ends_with":
            return set(_list(one)) <= set(_list(other))
        case "path_under" | "command_path_under":
            return _roots_imply(_list(one), _list(other))
    return False


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_in(value: Any, among: list[Any]) -> bool:
    return any(type(one) is type(value) and one == value for one in among)


def _number_implies(first: str, one: float, second: str, other: float) -> bool:
    if first[0] != second[0]:
        return False
    if one == other:
        return first == second or second.endswith("te")
    return one > other if first[0] == "g" else one < other


def _roots_imply(one: list[str], other: list[str]) -> bool:
    plain = all(root.startswith("/") and posixpath.normpath(root) == root and root.isascii() for root in (*one, *other))
    if not plain or "%" in "".join((*one, *other)):
        return sorted(one) == sorted(other)
    return all(any(root == parent or root.startswith(f"{parent.rstrip('/')}/") for parent in other) for root in one)


def _are_disjoint(first: Atom, second: Atom) -> bool:
    """Return whether no value surely meets both."""
    one, other = json.loads(first[2]), json.loads(second[2])
    if first[1] in ("equals", "in") and second[1] in ("equals", "in"):
        strings = all(isinstance(value, str) for value in (*_list(one), *_list(other)))
        return strings and set(_list(one)).isdisjoint(_list(other))
    if first[1] in ("gt", "gte") and second[1] in ("lt", "lte"):
        return bool(one > other or (one == other and (first[1], second[1]) != ("gte", "lte")))
    if first[1] == "type" and second[1] == "type":
        kinds = {"number" if kind == "integer" else kind for kind in _list(one)}
        return kinds.isdisjoint("number" if kind == "integer" else kind for kind in _list(other))
    return False
