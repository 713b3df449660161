"""Conditions that the arguments which were seen meet, and few others do. Pure.

Each condition comes with a few words on what was made of what. `levels` says for which places a condition turned out
too narrow for what was recorded: 1 keeps only types and lengths there, 2 keeps nothing.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.arg_path import parse_arg
from proxy.policy.regex import escape
from proxy.policy_learning.path_roots import find_roots, is_too_wide
from proxy.policy_learning.text_summary import FORMATS, SIGNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.policy_learning.text_summary import TextSummary
    from proxy.policy_learning.value_shape import Shape

type Tree = dict[str, Any]

# A text is one of a few words where each was seen so often, on average.
REPEATS: Final = 5
MAX_WORDS: Final = 12
MAX_DOMAINS: Final = 12
ENOUGH: Final = 5  # texts, before it says something that none of them has a sign
TYPES, ANYTHING = 1, 2
_COMMANDS: Final = ("command", "cmd", "commandline", "shellcommand")
_STEPS: Final = (1, 2, 5, 10)
_LEAST, _MOST = 1e-300, 1e300  # beyond these, a step is no number


@dataclass(slots=True)
class Generalised:
    """The conditions on a tool's arguments, and for each place what was made of it."""

    conditions: list[Tree] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)


def generalise(shape: Shape, levels: Mapping[str, int]) -> Generalised:
    """Return the conditions on the arguments of a tool; `shape` is that of its whole arguments."""
    found = Generalised()
    found.conditions.extend(_object("arguments", "", shape, levels, found.said))
    return found


def _object(place: str, prefix: str, shape: Shape, levels: Mapping[str, int], said: dict[str, str]) -> Iterator[Tree]:
    """Return the conditions on an object: which members it has, and each of them."""
    if shape.open_keys or "" in shape.members or levels.get(place, 0):
        said[place] = "any member: their names vary, are masked or empty"
    else:
        yield {"arg": place, "only_keys": sorted(shape.members)}
        said[place] = f"only {', '.join(sorted(shape.members))}" if shape.members else "none"
    total = shape.kinds["object"]
    for name, member in sorted(shape.members.items()):
        inner = _step(prefix, name)
        if inner is None:
            said[name] = "anything: no condition can name it"
            continue
        condition = _value(inner, member, levels, said, last=name)
        if condition is None:
            continue
        # A member that every call has is one that every later call must have, too.
        yield condition if member.count >= total else {"any": [{"arg": inner, "exists": False}, condition]}


def _step(prefix: str, name: str) -> str | None:
    """Return the arg path of a member; None where no path can name it."""
    quote = next((mark for mark in "\"'" if mark not in name and "]" not in name), None)
    plain = name.isidentifier() and not (name == "arguments" and not prefix)
    step = name if plain else f"[{quote}{name}{quote}]" if quote and name else None
    if step is None:
        return None
    path = f"{prefix}.{step}" if prefix and plain else f"{prefix}{step}"
    try:
        parse_arg(path)
    except ValueError:
        return None
    return path


def _value(place: str, shape: Shape, levels: Mapping[str, int], said: dict[str, str], last: str = "") -> Tree | None:
    """Return the condition on the values of one place; None where any value will do."""
    level = levels.get(place, 0)
    if level >= ANYTHING or shape.too_deep or not shape.count:
        said[place] = "anything"
        return None
    if level >= TYPES:
        said[place] = "any value of these types"
        return {"arg": place, "type": sorted(shape.kinds)}
    ways: list[Tree] = []
    for kind in sorted(shape.kinds):
        parts = list(_of_kind(kind, place, shape, levels, said, last))
        ways.append(parts[0] if len(parts) == 1 else {"all": parts})
    return ways[0] if len(ways) == 1 else {"any": ways}


def _of_kind(
    kind: str, place: str, shape: Shape, levels: Mapping[str, int], said: dict[str, str], last: str
) -> Iterator[Tree]:
    match kind:
        case "string":
            condition, words = text_condition(shape.text, is_command=last.replace("_", "").lower() in _COMMANDS)
            said[place] = words
            yield {"arg": place, "type": "string"}
            yield {"arg": place, **condition}
        case "number":
            low, high = round_down(shape.low or 0), round_up(shape.high or 0)
            said[place] = f"{'whole numbers' if shape.whole_numbers else 'numbers'} from {low} to {high}"
            kind = "integer" if shape.whole_numbers else "number"
            yield {"arg": place, "type": kind, "gte": low, "lte": high}
        case "boolean":
            said[place] = " or ".join(str(one).lower() for one in sorted(shape.booleans))
            yield {"arg": place, "type": "boolean", "in": sorted(shape.booleans)}
        case "array":
            yield from _array(place, shape, levels, said)
        case "object":
            yield {"arg": place, "type": "object"}
            yield from _object(place, place, shape, levels, said)
        case _:
            yield {"arg": place, "type": kind}


def _array(place: str, shape: Shape, levels: Mapping[str, int], said: dict[str, str]) -> Iterator[Tree]:
    yield {"arg": place, "type": "array", "length": {"lte": int(round_up(shape.longest))}}
    inner = f"{place}[*]"
    element = _value(inner, shape.element, levels, said) if shape.element is not None and shape.element.count else None
    if element is not None:
        yield {"any": [{"arg": place, "length": 0}, element]} if shape.empty else element
    elif shape.longest == 0:
        yield {"arg": place, "length": 0}


def text_condition(text: TextSummary, *, is_command: bool = False) -> tuple[Tree, str]:
    """Return the condition on the texts of one place, and what it says in words."""
    bound = {"length": {"lte": int(round_up(max(text.longest, 10) * 2))}}
    if text.paths and (roots := _roots(text.paths)):
        return {"path_under": roots}, f"paths under {', '.join(roots)}"
    if text.hosts:
        hosts, schemes = sorted(text.hosts), sorted(text.schemes)
        return {"url_scheme": schemes, "host_in": hosts}, f"URLs of {', '.join(hosts)}"
    if text.values and len(text.values) <= MAX_WORDS and text.count >= REPEATS * len(text.values):
        return {"in": sorted(text.values)}, f"one of {len(text.values)} texts, seen {text.count} times"
    if text.domains and len(text.domains) <= MAX_DOMAINS:
        ends = "|".join(escape(domain) for domain in sorted(text.domains))
        pattern = rf"(?i)\A[a-z0-9._+-]{{1,64}}@(?:{ends})\z"
        return {"matches": pattern}, f"addresses of {', '.join(sorted(text.domains))}"
    if is_command and text.values and (programs := _programs(text.values)):
        return {"command": programs, **bound}, f"runs {', '.join(programs)}; with which words is not bound"
    for name in FORMATS:
        if name in text.formats:
            return {"matches": rf"\A(?:{FORMATS[name]})\z", **bound}, f"{name}, no longer than twice what was seen"
    masked = f"; {text.masked} of {text.count} were masked" if text.masked else ""
    without = [one for one in SIGNS if one not in text.signs]
    if text.count >= ENOUGH and not masked and without:
        shown = " ".join(one for one in without if one.isprintable())
        free = {"matches": rf"\A[^{''.join(map(escape, without))}]*\z", **bound}
        return free, f"free text without any of {shown}, no longer than twice what was seen"
    return bound, f"free text, no longer than twice what was seen{masked}"


def _roots(paths: set[str]) -> list[str] | None:
    found = find_roots(paths)
    # A shared folder itself may have been listed. As a root it would open all that is in it.
    return None if found is None or any(is_too_wide(root) for root in found if root in _ROOT_FOLDERS) else found


_ROOT_FOLDERS: Final = frozenset(("/", "/etc", "/home", "/root", "/usr", "/var", "/proc", "/sys", "/dev", "/Users"))


def _programs(values: Mapping[str, int]) -> list[str]:
    """Return the programs that command lines begin with; empty where one cannot be read."""
    try:
        words = [shlex.split(value)[:1] for value in values]
    except ValueError:
        return []
    return sorted({word for first in words for word in first}) if all(words) else []


def round_up(number: float) -> int | float:
    """Return the next 1, 2 or 5 times a power of ten: room for the next honest value, but for no other size."""
    if number <= 0:
        return 0 if number == 0 else -round_down(-number)
    if not _LEAST < number < _MOST:
        return number
    power = 10.0 ** math.floor(math.log10(number))
    found = next(step * power for step in _STEPS if step * power >= number * (1 - 1e-12))
    return _plain(max(found, number))


def round_down(number: float) -> int | float:
    """Return the next lower such number; 0 below 10, because counts begin there."""
    if number < 0:
        return -round_up(-number)
    if number < 10:
        return 0
    if number >= _MOST:
        return number
    power = 10.0 ** math.floor(math.log10(number))
    found = next(step * power for step in reversed(_STEPS) if step * power <= number * (1 + 1e-12))
    return _plain(min(found, number))


def _plain(number: float) -> int | float:
    return int(number) if abs(number) < 2**53 and float(number).is_integer() else number
