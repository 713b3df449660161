"""The steps of an `arg` path, as they are written and read. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Key(NamedTuple):
    """One named step."""

    name: str


class Each(NamedTuple):
    """`[*]`: every element."""


class Index(NamedTuple):
    """`[3]`: one element."""

    position: int


class AnyKey(NamedTuple):
    """`*`: every member of an object or array."""


class Deep(NamedTuple):
    """`**`: the value and everything inside it."""


type Step = Key | Each | Index | AnyKey | Deep


def parse_steps(text: str) -> Iterator[Step]:
    """Return the steps of a path.

    Raises ValueError, saying what to write, where it is not one.
    """
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
            yield Deep() if name == "**" else AnyKey() if name == "*" else Key(name)
        if rest.startswith("."):
            rest = rest[1:]
            if not rest:
                raise ValueError(f"{text!r} ends in a dot; drop it or name the next key")


def _parse_bracket(rest: str, text: str) -> tuple[Step, str]:
    inside, closed, tail = rest[1:].partition("]")
    if not closed:
        raise ValueError(f"missing ] in {text!r}")
    if inside == "*":
        return Each(), tail
    if inside.isdecimal():
        return Index(int(inside)), tail
    if len(inside) > 2 and inside[0] == inside[-1] and inside[0] in "\"'":
        return Key(inside[1:-1]), tail
    raise ValueError(f"cannot read [{inside}] in {text!r}; write [*], [0] or ['key']")
