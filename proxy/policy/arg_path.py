"""The `arg` paths of conditions: parse them, and select the values of a call that they name. Pure, no I/O.

Paths: `path`, `arguments.path`, `files[*].path`, `list[0]`, `["odd.key"]`, `*` (any key),
`**.url` (at any depth), `**` (every scalar), `path.**` (the value and every scalar inside it;
scalars of a type that the operator does not compare are ignored). `@paths`, `@written`, `@commands` and
`@hosts` select by what a value is (`selectors`).

A key is found in any case, because some servers decode `Path` as `path`. JSON inside a string
is searched too, because some servers parse it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.policy.eval_context import (
    AMBIGUOUS,
    MAX_EMBEDDED,
    MAX_NODES,
    MAX_VALUES,
    NOTHING,
    EvalContext,
    Selection,
    Trouble,
    fold_key,
    fold_names,
)
from proxy.policy.selectors import SELECTORS
from proxy.policy.text import AmbiguousError, parse_embedded_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Key(NamedTuple):
    name: str


class Index(NamedTuple):
    position: int  # of one element: `[3]`


class Wild(Enum):
    """Every element (`[*]`), every member of an object or array (`*`), the value and all inside it (`**`)."""

    EACH = "[*]"
    ANY_KEY = "*"
    DEEP = "**"


type Step = Key | Index | Wild

EVERYTHING: tuple[Step, ...] = (Wild.DEEP,)
"""The steps of `**`: every scalar."""


@dataclass(frozen=True, slots=True)
class ArgPath:
    """A compiled `arg`.

    `key` names the selection in `EvalContext.memo`. Where no member is called `name` (`folded`
    when folded), at the top for `path` or at any depth for `**.path.x`, nothing can be found.
    `direct` says that the path is that one name.
    """

    text: str
    steps: tuple[Step, ...]
    key: str
    name: str = ""
    folded: str = ""
    direct: bool = False
    selector: Callable[[EvalContext], Selection] | None = None

    @property
    def sweeps(self) -> bool:
        """Whether the path ends in `**`, or is a selector, and takes in values whose types differ by nature."""
        return self.selector is not None or (bool(self.steps) and self.steps[-1] is Wild.DEEP)

    def is_absent(self, context: EvalContext) -> bool:
        return not context.names(self.folded) if self.direct else self.select(context) is NOTHING

    def single_value(self, context: EvalContext) -> Any:
        """Return the argument where it is the only one of its name in any case; None otherwise."""
        if not self.direct:
            return None
        names = context.names(self.folded)
        return context.arguments[self.name] if len(names) == 1 and names[0] == self.name else None

    def select(self, context: EvalContext) -> Selection:
        """Return the values of one call; computed once per call."""
        found: Selection | None = context.memo.get(self.key)
        if found is None:
            if self.selector is not None:
                return self.selector(context)
            select = _select_member if self.direct else _select
            found = context.memo[self.key] = select(context, self)
        return found


def parse_arg(text: str) -> ArgPath:
    """Compile an `arg` path; raise ValueError that says what to write instead."""
    if text.startswith("@"):
        if text not in SELECTORS:
            raise ValueError(f"no selector {text}; write one of {', '.join(SELECTORS)}, or ['{text}'] for an argument")
        return ArgPath(text, (), "=" + text, selector=SELECTORS[text])
    steps = tuple(_parse_steps(text))
    if not steps:
        raise ValueError("an arg path names at least one step, such as path or files[*].path")
    if steps[0] == Key("arguments"):
        steps = steps[1:]
    match steps:
        case (Key(name),) | (Wild.DEEP, Key(name), *_):
            return ArgPath(text, steps, "=" + text, name, fold_key(name), direct=len(steps) == 1)
        case _:
            return ArgPath(text, steps, "=" + text)


def _parse_steps(text: str) -> Iterator[Step]:
    rest = text
    while rest:
        if rest.startswith("["):
            step, rest = _parse_bracket(rest, text)
            yield step
        else:
            end = min((i for i in (rest.find("."), rest.find("[")) if i >= 0), default=len(rest))
            name, rest = rest[:end], rest[end:]
            if not name:
                raise ValueError(f"empty step in {text!r}; write names with one dot between them")
            yield Wild(name) if name in ("*", "**") else Key(name)
        if rest.startswith("."):
            rest = rest[1:]
            if not rest:
                raise ValueError(f"{text!r} ends in a dot; remove it or name the next key")


def _parse_bracket(rest: str, text: str) -> tuple[Step, str]:
    inside, closed, tail = rest[1:].partition("]")
    if not closed:
        raise ValueError(f"missing ] in {text!r}")
    if inside == "*":
        return Wild.EACH, tail
    if inside.isdecimal():
        return Index(int(inside)), tail
    if len(inside) > 2 and inside[0] == inside[-1] and inside[0] in "\"'":
        return Key(inside[1:-1]), tail
    raise ValueError(f"cannot read [{inside}] in {text!r}; write [*], [0] or ['key']")


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
        if arg.name and arg.folded not in _owners(context):
            return NOTHING
        nodes = _walk(context, arg.steps)
        _bound(len(nodes), MAX_VALUES)
    except AmbiguousError as error:
        return Selection((), (), Trouble(AMBIGUOUS, str(error)))
    if not nodes:
        return NOTHING
    return Selection(tuple([n.value for n in nodes if n.exact]), tuple([n.value for n in nodes if not n.exact]))


def _walk(context: EvalContext, steps: tuple[Step, ...]) -> list[_Node]:
    nodes = [_Node(context.arguments, True)]
    if len(steps) > 1 and steps[0] is Wild.DEEP:
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
        if step is Wild.DEEP and not last:
            nodes = [node for node in nodes if not isinstance(node.value, str)]
    return nodes


def _everything(context: EvalContext) -> list[_Node]:
    """Return every object and array of a call, also those inside strings; computed once per call."""
    found: list[_Node] | AmbiguousError | None = context.memo.get("**")
    if found is None:
        descent = _descend(_Node(context.arguments, True), last=False)
        try:
            # The descent has parsed the strings, so nothing is left to find in them.
            found = [node for node in descent if isinstance(node.value, dict | list)]
        except AmbiguousError as error:
            found = error
        context.memo["**"] = found
    if isinstance(found, AmbiguousError):
        raise AmbiguousError(str(found))
    return found


def _owners(context: EvalContext) -> dict[str, list[tuple[_Node, Sequence[str]]]]:
    """Return, by folded name, the objects at any depth that have it, with the names as written; once per call."""
    owners: dict[str, list[tuple[_Node, Sequence[str]]]] | None = context.memo.get("**.")
    if owners is None:
        owners = {}
        for node in _everything(context):
            if isinstance(node.value, dict):
                for folded, names in fold_names(node.value).items():
                    owners.setdefault(folded, []).append((node, names))
        context.memo["**."] = owners
    return owners


def _named(context: EvalContext, name: str) -> list[_Node]:
    found: list[_Node] = []
    for (value, exact), names in _owners(context).get(fold_key(name), ()):
        if name in names:
            found.append(_Node(value[name], exact))
        found.extend([_Node(value[other], False) for other in names if other != name])
    return found


def _bound(count: int, most: int) -> None:
    if count > most:
        raise AmbiguousError(f"more than {most} values")


def _step(node: _Node, step: Step, *, last: bool) -> Iterator[_Node]:
    if step is Wild.DEEP:
        yield from _descend(node, last=last)
        return
    value, exact = node
    if isinstance(value, str):
        value, exact = _inside(value), False
    match step:
        case Key(name) if isinstance(value, dict):
            folded = fold_key(name)
            if name in value:
                yield _Node(value[name], exact)
            yield from (_Node(v, False) for k, v in value.items() if k != name and fold_key(k) == folded)
        case Wild.ANY_KEY if isinstance(value, dict):
            yield from (_Node(v, exact) for v in value.values())
        case Wild.ANY_KEY | Wild.EACH if isinstance(value, list):
            yield from (_Node(v, exact) for v in value)
        case Index(position) if isinstance(value, list) and position < len(value):
            yield _Node(value[position], exact)


def _inside(text: str) -> Any:
    """Return the JSON that `text` holds, or None; raise AmbiguousError for what only looks like JSON."""
    parsed: Any = text
    for _ in range(MAX_EMBEDDED):
        if not isinstance(parsed, str):
            break
        text, parsed = parsed, parse_embedded_json(parsed)
    # A lenient parser might still read it.
    if parsed is None and text.lstrip()[:1] in ("{", "["):
        raise AmbiguousError("a string that looks like JSON and is not")
    return parsed


def _descend(node: _Node, *, last: bool) -> Iterator[_Node]:
    """Return `node` and everything in it; at the end of a path, only the scalars."""
    # A stack of our own: deep nesting must not raise RecursionError.
    stack = [(node.value, node.exact, 0)]
    seen = 0
    while stack:
        value, exact, hops = stack.pop()
        seen += 1
        _bound(seen, MAX_NODES)
        if not last or not isinstance(value, dict | list):
            yield _Node(value, exact)
        if isinstance(value, str) and hops < MAX_EMBEDDED:
            parsed = parse_embedded_json(value)
            if parsed is not None:
                stack.append((parsed, False, hops + 1))
        elif isinstance(value, dict):
            stack.extend((v, exact, hops) for v in value.values())
        elif isinstance(value, list):
            stack.extend((v, exact, hops) for v in value)


def inner_strings(text: str) -> tuple[str, ...]:
    """Return the strings in the JSON that `text` holds, if any; raise AmbiguousError where parsers would disagree."""
    parsed = parse_embedded_json(text)
    found = () if parsed is None else _descend(_Node(parsed, False), last=True)
    return tuple(node.value for node in found if isinstance(node.value, str))
