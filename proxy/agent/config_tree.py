"""What JSON, TOML and YAML have in common: values with their positions in the text, and edits by position. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

type Edit = tuple[int, int, str]
NOWHERE = -1


@dataclass(slots=True)
class Node:
    """A value, and where it stands in the text.

    A mapping has `members`, in order and with repeated keys; a list has `items`; anything else a `value`. `on_lines`
    says that each member or item takes lines of its own, without brackets: a YAML block, or a table of TOML.
    """

    start: int = NOWHERE
    end: int = NOWHERE
    value: Any = None
    members: list[Member] | None = None
    items: list[Node] | None = None
    on_lines: bool = False

    def get(self, key: str) -> Node | None:
        """Return a member's value; None if there is none, or more than one."""
        found = [member.node for member in self.members or () if member.key == key]
        return found[0] if len(found) == 1 else None

    def has(self, key: str) -> bool:
        return any(member.key == key for member in self.members or ())

    def text(self) -> str | None:
        """Return a string; None if it is something else."""
        return self.value if isinstance(self.value, str) else None

    def words(self) -> list[str] | None:
        """Return a list of strings; None if it is something else."""
        if self.items is None:
            return None
        words = [item.value for item in self.items]
        return words if all(isinstance(word, str) for word in words) else None


@dataclass(slots=True)
class Member:
    """A member of a mapping."""

    key: str
    key_start: int
    node: Node


@dataclass(slots=True)
class Tree:
    """A parsed text. Positions are in `text`; `plain` is the same without comments, at the same positions."""

    text: str
    plain: str
    root: Node


def find(node: Node, path: Sequence[str]) -> Iterator[Node]:
    """Yield what stands at a path of keys, `*` being any key. Where a key is repeated, each of them."""
    if not path:
        yield node
        return
    for member in node.members or ():
        if path[0] in (member.key, "*"):
            yield from find(member.node, path[1:])


def outline(node: Node, without: Sequence[Node] = ()) -> Any:
    """Return a value for comparison, in which the order and repetition of keys count; `without` some nodes."""
    if any(node is left for left in without):
        return ...
    if node.members is not None:
        kept = [(member.key, outline(member.node, without)) for member in node.members]
        return ("mapping", [pair for pair in kept if pair[1] is not ...])
    if node.items is not None:
        return ("list", [outline(item, without) for item in node.items])
    # Else 1, 1.0 and true were equal.
    return (type(node.value).__name__, repr(node.value))


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with parts replaced."""
    # From the end, so that earlier positions stay valid.
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
