"""Values that operators tell apart: made from what the conditions of two policies compare with. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.arg_path import Index, Key, Wild, parse_arg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxy.policy_learning.abstract_bits import Atom

ABSENT: Final = object()
_PLACES: Final = {"@commands": "command", "@hosts": "url"}
_GENERAL: Final[tuple[Any, ...]] = (
    *(ABSENT, None, "", "zz-other", "other words", 0, 1, -1, 1.5, 10**12, True, False, [], {}, ["x"], {"x": 1}),
    *("/zz/other", "/etc/passwd", "https://zz-other.example/", "ls", "%2e", "5"),
)


def sample_values(atoms: Iterable[Atom]) -> list[Any]:
    """Return values for one argument: at, beside and far from what its operators compare with."""
    found = list(_GENERAL)
    for _, name, operand in atoms:
        value = json.loads(operand)
        for one in value if isinstance(value, list) else [value]:
            found.extend(_around(name, one))
    return found


def _around(name: str, one: Any) -> Iterator[Any]:
    if isinstance(one, bool) or one is None:
        yield from (one, str(one).lower())
    elif isinstance(one, int | float):
        yield from (one, one - 1, one + 1, one + 0.5, str(one), str(one + 1))
        if name == "length" and isinstance(one, int):
            yield from ("x" * min(max(one + step, 0), 10_000) for step in (-1, 0, 1))
    elif isinstance(one, str):
        yield from (one, f"{one}x", f"x{one}", f"x{one}x", one.upper(), [one], f"{one}/inside", f"https://{one}/x")
        plain = one.replace("*", "x").replace("?", "x")
        yield from (plain, f"https://{plain}/", f"{plain} x", f"{plain}://zz.example/", f"/{plain}")
    elif isinstance(one, dict):
        bounds = [bound for bound in one.values() if isinstance(bound, int)]
        yield from ("x" * min(max(bound + step, 0), 10_000) for bound in bounds for step in (-1, 0, 1))


def place_value(arguments: dict[str, Any], arg: str, value: Any) -> None:
    """Put a value where an arg path would find it; what it cannot be put at is left as it is."""
    path = parse_arg(arg)
    if value is ABSENT:
        return
    if path.selector is not None:
        arguments[_PLACES.get(arg, "path")] = value
        return
    if not path.steps:
        arguments.update(value if isinstance(value, dict) else {})
        return
    _put(arguments, [step for step in path.steps if step is not Wild.DEEP] or [Key("x")], value)


def _put(inside: Any, steps: list[Any], value: Any) -> None:
    step, rest = steps[0], steps[1:]
    key: Any = step.name if isinstance(step, Key) else step.position if isinstance(step, Index) else "x"
    filled = value if not rest else [] if rest[0] is Wild.EACH or isinstance(rest[0], Index) else {}
    if isinstance(inside, list):
        inside.extend([None] * (key + 1 - len(inside)) if isinstance(key, int) else [])
        if isinstance(key, int):
            inside[key] = filled
        else:
            inside.append(filled)
    elif isinstance(inside, dict) and isinstance(key, str):
        filled = inside.get(key, filled) if rest else filled
        inside[key] = filled
    if rest:
        _put(filled, rest, value)
