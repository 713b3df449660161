"""The values of a call that a condition speaks of. Pure, no I/O.

`arg` paths: `path`, `arguments.path`, `files[*].path`, `list[0]`, `["odd.key"]`,
`*` (any key), `**.url` (at any depth), `**` (every scalar), `path.**` (the value
and every scalar inside it; those of a type the operator does not speak of are
passed over). A key is found in any
case, because some servers decode `Path` as `path`, and JSON inside a string is
looked into, because some servers parse it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.arg_path import AnyKey, Deep, Each, Index, Key, parse_steps
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.policy.arg_path import Step

WRONG_TYPE: Final = "wrong_type"
AMBIGUOUS: Final = "ambiguous_value"

MAX_NODES = 200_000
MAX_VALUES = 10_000
_MAX_EMBEDDED = 4


class Trouble(NamedTuple):
    """Why a value cannot be judged: a reason code and what was seen."""

    reason: str
    detail: str


class AmbiguousError(Exception):
    """A value that different readers would read differently."""


class Selection(NamedTuple):
    """What an `arg` path found: values at the very place, and values a lax server would take."""

    exact: tuple[Any, ...]
    loose: tuple[Any, ...]
    trouble: Trouble | None = None


NOTHING: Final = Selection((), (), None)
"""Given wherever there is no value at all."""


class EvalContext:
    """One call being judged: its arguments, and what was already worked out about them.

    `guess` is what a condition that cannot be judged answers (bit 0: may match,
    bit 1: must match); `unknown` is the last trouble met.
    """

    __slots__ = ("_names", "arguments", "guess", "memo", "unknown")

    def __init__(self, arguments: JsonObject) -> None:
        self.arguments = arguments
        self.memo: dict[str, Any] = {}
        self.guess = 1
        self.unknown: Trouble | None = None
        self._names: Mapping[str, Sequence[str]] | None = None

    def names(self, folded: str) -> Sequence[str]:
        """Return the arguments whose names fold to `folded`; all are folded once per call."""
        if self._names is None:
            self._names = _fold_names(self.arguments)
        return self._names.get(folded, ())

    def give_up(self, trouble: Trouble) -> int:
        """Note why a condition cannot be judged and answer with the guess."""
        self.unknown = trouble
        return self.guess

    def take_trouble(self) -> Trouble | None:
        """Return the last trouble met, and forget it."""
        trouble, self.unknown = self.unknown, None
        return trouble


@dataclass(frozen=True, slots=True)
class ArgPath:
    """A compiled `arg`."""

    text: str
    steps: tuple[Step, ...]
    key: str
    """The selection's name among what is worked out once per call."""
    name: str = ""
    """Where no member is called so, at the top (`path`) or at any depth (`**.path.x`), nothing is found."""
    folded: str = ""
    """The same, folded."""
    direct: bool = False
    """Whether the path is that name and no more."""

    @property
    def sweeps(self) -> bool:
        """Whether the path takes in every scalar below a place, so that types differ by nature."""
        return bool(self.steps) and isinstance(self.steps[-1], Deep)

    def is_absent(self, context: EvalContext) -> bool:
        """Return whether there is no value at all."""
        return not context.names(self.folded) if self.direct else self.select(context) is NOTHING

    def single_value(self, context: EvalContext) -> Any:
        """Return the value of an argument that has no namesake, the short way; None where it is not that simple."""
        if not self.direct:
            return None
        names = context.names(self.folded)
        return context.arguments[self.name] if len(names) == 1 and names[0] == self.name else None

    def select(self, context: EvalContext) -> Selection:
        """Find the values of one call; worked out once per call."""
        found: Selection | None = context.memo.get(self.key)
        if found is None:
            select = _select_member if self.direct else _select
            found = context.memo[self.key] = select(context, self)
        return found


def parse_arg(text: str) -> ArgPath:
    """Compile an `arg` path.

    Raises ValueError, saying what to write, where it is not one.
    """
    steps = tuple(parse_steps(text))
    if not steps:
        raise ValueError("an arg path names at least one step, such as path or files[*].path")
    if len(steps) > 1 and steps[0] == Key("arguments"):
        steps = steps[1:]
    elif steps == (Key("arguments"),):
        steps = ()
    match steps:
        case (Key(name),) | (Deep(), Key(name), *_):
            return ArgPath(text, steps, "=" + text, name, _fold_key(name), direct=len(steps) == 1)
        case _:
            return ArgPath(text, steps, "=" + text)


class _Node(NamedTuple):
    value: Any
    exact: bool


def _select_member(context: EvalContext, arg: ArgPath) -> Selection:
    alike = context.names(arg.folded)
    if not alike:
        return NOTHING
    name, arguments = arg.name, context.arguments
    exact = (arguments[name],) if name in alike else ()
    if len(alike) == len(exact):
        return Selection(exact, (), None)
    return Selection(exact, tuple([arguments[other] for other in alike if other != name]), None)


def _select(context: EvalContext, arg: ArgPath) -> Selection:
    try:
        if arg.name and arg.folded not in _places(context):
            return NOTHING
        nodes = _walk(context, arg.steps)
        _bound(len(nodes), MAX_VALUES)
    except AmbiguousError as error:
        return Selection((), (), Trouble(AMBIGUOUS, str(error)))
    if not nodes:
        return NOTHING
    return Selection(
        tuple([n.value for n in nodes if n.exact]),
        tuple([n.value for n in nodes if not n.exact]),
    )


def _walk(context: EvalContext, steps: tuple[Step, ...]) -> list[_Node]:
    nodes = [_Node(context.arguments, True)]
    if len(steps) > 1 and isinstance(steps[0], Deep):
        if isinstance(steps[1], Key):
            nodes = _named(context, steps[1].name)
            _bound(len(nodes), MAX_NODES)
            steps = steps[2:]
        else:
            nodes = _everything(context)
            steps = steps[1:]
    for position, step in enumerate(steps):
        last = position == len(steps) - 1
        nodes = [found for node in nodes for found in _step(node, step, last=last)]
        _bound(len(nodes), MAX_NODES)
        if isinstance(step, Deep) and not last:
            nodes = [node for node in nodes if not isinstance(node.value, str)]
    return nodes


def _everything(context: EvalContext) -> list[_Node]:
    """Return every object and array of a call, those inside strings too; worked out once per call."""
    found: list[_Node] | AmbiguousError | None = context.memo.get("**")
    if found is None:
        descent = _descend(_Node(context.arguments, True), last=False)
        try:
            # The descent has looked into strings, so nothing is left to find in them.
            found = [node for node in descent if isinstance(node.value, dict | list)]
        except AmbiguousError as error:
            found = error
        context.memo["**"] = found
    if isinstance(found, AmbiguousError):
        raise AmbiguousError(str(found))
    return found


def _places(context: EvalContext) -> dict[str, list[tuple[_Node, Sequence[str]]]]:
    """Give, for each name folded, the objects at any depth that have it, and how it is spelt there; once per call."""
    places: dict[str, list[tuple[_Node, Sequence[str]]]] | None = context.memo.get("**.")
    if places is None:
        places = {}
        for node in _everything(context):
            if isinstance(node.value, dict):
                for folded, names in _fold_names(node.value).items():
                    places.setdefault(folded, []).append((node, names))
        context.memo["**."] = places
    return places


def _named(context: EvalContext, name: str) -> list[_Node]:
    """Return every member of that name at any depth."""
    found: list[_Node] = []
    for (value, exact), names in _places(context).get(_fold_key(name), ()):
        if name in names:
            found.append(_Node(value[name], exact))
        found.extend([_Node(value[other], False) for other in names if other != name])
    return found


def _bound(count: int, most: int) -> None:
    if count > most:
        raise AmbiguousError(f"more than {most} values")


def _members(value: dict[str, Any], name: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    folded = _fold_key(name)
    exact = (value[name],) if name in value else ()
    loose = [v for k, v in value.items() if k != name and _fold_key(k) == folded]
    return exact, tuple(loose)


def _fold_names(value: dict[str, Any]) -> Mapping[str, Sequence[str]]:
    names = tuple(value.keys())  # what is no object raises here
    return _group_short(names) if sum(map(len, names)) <= _SHORT_NAMES else _group_any(names)


def _group_any(names: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Return names by what they fold to."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_fold_key(name), []).append(name)
    return alike


_SHORT_NAMES: Final = 512
# Calls of one tool have the same names again and again.
_group_short = lru_cache(maxsize=1024)(_group_any)


def _fold_key(key: str) -> str:
    """Fold a key; short ones, which come again and again, are remembered."""
    return _fold_short(key) if len(key) <= 64 else _fold_any(key)


def _fold_any(key: str) -> str:
    """Fold case and looks, and drop `_` and `-`: some decoders take filePath for file_path."""
    return fold(key).replace("_", "").replace("-", "") or key


_fold_short = lru_cache(maxsize=4096)(_fold_any)


def _step(node: _Node, step: Step, *, last: bool) -> Iterator[_Node]:
    if isinstance(step, Deep):
        yield from _descend(node, last=last)
        return
    value, exact = node
    if isinstance(value, str):
        value, exact = _inside(value), False
    match step:
        case Key(name) if isinstance(value, dict):
            same, similar = _members(value, name)
            yield from (_Node(v, exact) for v in same)
            yield from (_Node(v, False) for v in similar)
        case AnyKey() if isinstance(value, dict):
            yield from (_Node(v, exact) for v in value.values())
        case AnyKey() | Each() if isinstance(value, list):
            yield from (_Node(v, exact) for v in value)
        case Index(position) if isinstance(value, list) and position < len(value):
            yield _Node(value[position], exact)
        case _:
            return


def _inside(text: str) -> Any:
    """Return the JSON that `text` holds, or None; what only looks like JSON is ambiguous."""
    parsed: Any = text
    for _ in range(_MAX_EMBEDDED):
        if not isinstance(parsed, str):
            break
        text, parsed = parsed, embedded(parsed)
    if parsed is None and text.lstrip()[:1] in ("{", "["):
        raise AmbiguousError("a string that looks like JSON and is not")
    return parsed


def _descend(node: _Node, *, last: bool) -> Iterator[_Node]:
    """Return `node` and everything in it; at the end of a path, only the scalars."""
    stack = [(node.value, node.exact, 0)]
    seen = 0
    while stack:
        value, exact, hops = stack.pop()
        seen += 1
        _bound(seen, MAX_NODES)
        if not last or not isinstance(value, dict | list):
            yield _Node(value, exact)
        if isinstance(value, str) and hops < _MAX_EMBEDDED:
            parsed = embedded(value)
            if parsed is not None:
                stack.append((parsed, False, hops + 1))
        elif isinstance(value, dict):
            stack.extend((v, exact, hops) for v in value.values())
        elif isinstance(value, list):
            stack.extend((v, exact, hops) for v in value)


def looks_like_json(text: str) -> bool:
    """Return whether a text may hold a JSON object, array or string."""
    return text.lstrip(_BLANKS)[:1] in _OPENINGS


_BLANKS: Final = " \t\r\n\ufeff"
_OPENINGS: Final = frozenset('{["')


def embedded(text: str) -> Any:
    """Return the JSON object, array or string that `text` holds, or None.

    Raises AmbiguousError where readers would disagree on it.
    """
    if not looks_like_json(text):
        return None
    try:
        return json.loads(text.lstrip(_BLANKS), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise AmbiguousError("JSON nested too deeply inside a string") from None
    except ValueError:
        return None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise AmbiguousError("JSON with a key twice inside a string")
    return made


def inner_strings(text: str) -> tuple[str, ...]:
    """Return the strings inside the JSON that `text` holds; none for any other text.

    Raises AmbiguousError where readers would disagree on it.
    """
    parsed = embedded(text)
    if parsed is None:
        return ()
    found = _descend(_Node(parsed, False), last=True)
    return tuple(node.value for node in found if isinstance(node.value, str))
