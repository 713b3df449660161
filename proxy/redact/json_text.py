"""A JSON value as one text to scan, and the way back from places in the text to the value.

Pure. The text reads like JSON, so that a detector sees `"password": "…"` whether it comes
as a field or as JSON inside a string. After it come the strings once more, end to end, once in
document order, without the protocol's own words, and once for each name that several of them
have, so that what is split over them is whole.
Nothing recurses: a value may be nested as deep as it likes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxy.core.model import Json

type Place = str | int
type LeafKind = Literal["key", "string", "number"]

FRAGMENT: Final = 256
SMALLEST_NUMBER: Final = 1_000_000
_SHORTEST_SPELLING: Final = 13
_MAX_STEPS: Final = 64
_BINARY: Final = ("blob", "data")
PROTOCOL: Final = frozenset(("type", "role", "audience", "mimeType", "jsonrpc", "resultType"))
_CONTENT: Final = ("text", "image", "audio", "resource", "resource_link", "tool_use", "tool_result")
_PROTOCOL_WORDS: Final = frozenset((*_CONTENT, "user", "assistant", "2.0", "complete", "input_required"))
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")
_MARKS: Final[dict[LeafKind, tuple[str, str]]] = {
    "key": ('"', '": '),
    "string": ('"', '"\n'),
    "number": ("", "\n"),
}
WALL: Final = b"\x00"
"""Stands in for text that is already masked: no detector matches it or looks past it."""
MASK_START: Final = r"\[(?:secret|pii|custom):"
"""Matches how every mask begins."""
UNREADABLE: Final = "\x00"
"""Stands for a number with more digits than can be looked at."""


class Container(NamedTuple):
    """An object or array of the value, and where it sits."""

    value: dict[str, Any] | list[Any]
    parent: int
    place: Place


class Leaf(NamedTuple):
    """A key, string or number of the value."""

    kind: LeafKind
    text: str
    container: int
    place: Place


@dataclass(frozen=True, slots=True)
class Piece:
    """Where part of a leaf, in bytes, stands in the text."""

    offset: int
    leaf: int
    start: int
    size: int


class Document:
    """The leaves of one JSON value, collected in document order."""

    def __init__(self, value: Json) -> None:
        self.value = value
        self.containers: list[Container] = []
        self.leaves: list[Leaf] = []
        self._collect(value)

    def _collect(self, value: Json) -> None:
        stack: list[Iterator[tuple[int, Place, Any]]] = [iter([(-1, "", value)])]
        add = self.leaves.append
        while stack:
            for container, place, item in stack[-1]:
                if isinstance(item, str):
                    add(Leaf("string", item, container, place))
                elif isinstance(item, (dict, list)):
                    if isinstance(item, list) and spells_text(item):
                        add(Leaf("number", bytes(item).decode(), container, place))
                    stack.append(self._enter(container, place, item))
                    break
                elif item and abs(item) >= SMALLEST_NUMBER:
                    add(Leaf("number", _number_text(item), container, place))
            else:
                stack.pop()

    def _enter(
        self, container: int, place: Place, item: dict[str, Any] | list[Any]
    ) -> Iterator[tuple[int, Place, Any]]:
        index = len(self.containers)
        self.containers.append(Container(item, container, place))
        if isinstance(item, list):
            return zip(repeat(index), count(), item)
        return self._entries(index, item)

    def _entries(self, index: int, item: dict[str, Any]) -> Iterator[tuple[int, Place, Any]]:
        for key, child in item.items():
            self.leaves.append(Leaf("key", key, index, key))
            yield index, key, child

    def name(self, leaf: Leaf) -> Place:
        """Return the key that a leaf stands under, be it in an array there."""
        if isinstance(leaf.place, str) or leaf.container < 0:
            return leaf.place
        return self.containers[leaf.container].place

    def is_plumbing(self, leaf: Leaf) -> bool:
        """Tell a word of the protocol, which stands between the pieces of a text and is part of none."""
        return is_protocol_word(self.name(leaf), leaf.text)

    def is_binary(self, leaf: Leaf) -> bool:
        """Tell what MCP has in base64, images, sounds and blobs: readers refuse anything else there."""
        if leaf.kind != "string" or leaf.place not in _BINARY:
            return False
        return leaf.place == "blob" or "mimeType" in self.containers[leaf.container].value

    def rewritten(self, changes: Mapping[int, str]) -> Json:
        """Return the value with the leaves in `changes` replaced; the original is left alone."""
        if not changes:
            return self.value
        copies: dict[int, dict[str, Any] | list[Any]] = {}
        keys: dict[int, dict[str, str]] = {}
        for index, text in changes.items():
            leaf = self.leaves[index]
            if leaf.container < 0:
                return text
            copy = self._copy(leaf.container, copies)
            if leaf.kind == "key":
                keys.setdefault(leaf.container, {})[leaf.text] = text
            else:
                copy[leaf.place] = text
        self._rename(copies, keys)
        return copies[0]

    def _copy(self, index: int, copies: dict[int, Any]) -> Any:
        """Return the writable copy of a container, copying what is above it as far as needed."""
        wanted = index
        while index not in copies:
            container = self.containers[index]
            copies[index] = container.value.copy()
            if container.parent < 0:
                break
            index = container.parent
        self._link(wanted, copies)
        return copies[wanted]

    def _link(self, index: int, copies: dict[int, Any]) -> None:
        while (parent := self.containers[index].parent) >= 0:
            place = self.containers[index].place
            if copies[parent][place] is copies[index]:
                return
            copies[parent][place] = copies[index]
            index = parent

    def _rename(self, copies: dict[int, Any], keys: dict[int, dict[str, str]]) -> None:
        for index, names in keys.items():
            copy = copies[index]
            entries = list(copy.items())
            copy.clear()
            taken = {key for key, _ in entries if key not in names}
            for key, child in entries:
                name = _free_name(names[key], taken) if key in names else key
                taken.add(name)
                copy[name] = child

    def path(self, index: int, shown: Mapping[tuple[int, Place], str] | None = None) -> str:
        """Return where a leaf is, as `files[0].name`; `shown` has the masked forms of keys.

        Of a leaf nested deeper than `_MAX_STEPS` the path begins with an ellipsis.
        """
        container, place = self.leaves[index].container, self.leaves[index].place
        steps: list[str] = []
        while container >= 0 and len(steps) < _MAX_STEPS:
            if isinstance(place, int):
                steps.append(f"[{place}]")
            else:
                steps.append(_step((shown or {}).get((container, place), place)))
            container, place = self.containers[container].parent, self.containers[container].place
        path = "".join(reversed(steps))
        return path.removeprefix(".") if container < 0 else f"\N{HORIZONTAL ELLIPSIS}{path}"

    def shown_keys(self, changes: Mapping[int, str]) -> dict[tuple[int, Place], str]:
        """Return what paths must show for the keys among `changes`."""
        return {
            (self.leaves[index].container, self.leaves[index].place): text
            for index, text in changes.items()
            if self.leaves[index].kind == "key"
        }


def _step(key: str) -> str:
    if key and not any(character in key for character in '.[]"*'):
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'


def _free_name(name: str, taken: set[str]) -> str:
    """Return `name`, numbered where two keys of one object mask to the same."""
    numbered = (f"{name}~{number}" for number in count(2))
    return name if name not in taken else next(free for free in numbered if free not in taken)


def is_protocol_word(name: Place, text: str) -> bool:
    """Tell a word of the protocol by the key it stands under."""
    return name in PROTOCOL and (text in _PROTOCOL_WORDS or _MEDIA_TYPE.fullmatch(text) is not None)


def spells_text(item: list[Any]) -> bool:
    """Return whether an array is text written as the codes of its characters."""
    if len(item) < _SHORTEST_SPELLING or type(item[0]) is not int:
        return False
    return all(type(code) is int and 9 <= code < 127 for code in item)


def _number_text(number: float) -> str:
    try:
        return repr(number)
    except ValueError:  # more digits than Python will print
        return UNREADABLE


class Text:
    """The text of a document, given the current texts of its leaves; of those in `windows`, what the windows show."""

    def __init__(
        self, document: Document, texts: list[bytes], windows: Mapping[int, Sequence[tuple[int, int]]] | None = None
    ) -> None:
        self._document = document
        self._texts = texts
        self._windows = windows or {}
        chunks: list[bytes] = []
        for index, (leaf, text) in enumerate(zip(document.leaves, texts, strict=True)):
            before, after = _BYTE_MARKS[leaf.kind]
            shown = self._windows.get(index)
            whole = text if shown is None else WALL.join(text[low:high] for low, high in shown)
            chunks += (before, whole, after)
        self.body_size = sum(map(len, chunks))
        self._joined = list(self._joins())
        for group in self._joined:
            chunks += (b"\n", *(text[start:end] for _, text, start, end in group))
        self.data = b"".join(chunks)

    def _joins(self) -> Iterator[list[tuple[int, bytes, int, int]]]:
        strings = [index for index, leaf in enumerate(self._document.leaves) if leaf.kind == "string"]
        if len(strings) < 2:
            return
        said = [index for index in strings if not self._document.is_plumbing(self._document.leaves[index])]
        if len(said) > 1:  # what is in one string alone is found there
            yield self._group(said)
        by_name: dict[Place, list[int]] = {}
        for index in strings:
            by_name.setdefault(self._document.name(self._document.leaves[index]), []).append(index)
        if len(by_name) > 1:
            yield from (self._group(group) for group in by_name.values() if len(group) > 1)

    def _group(self, leaves: list[int]) -> list[tuple[int, bytes, int, int]]:
        """Return the fragments of leaves to put end to end: short ones whole, of long ones both ends."""
        fragments: list[tuple[int, bytes, int, int]] = []
        for index in leaves:
            text = self._texts[index]
            if len(text) <= 2 * FRAGMENT:
                fragments.append((index, text, 0, len(text)))
            else:
                fragments.append((index, text, 0, FRAGMENT))
                fragments.append((-1, b"\n", 0, 1))
                fragments.append((index, text, len(text) - FRAGMENT, len(text)))
        return fragments

    @cached_property
    def _pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        offset = 0
        for index, (leaf, text) in enumerate(zip(self._document.leaves, self._texts, strict=True)):
            before, after = _BYTE_MARKS[leaf.kind]
            offset += len(before)
            for low, high in self._windows.get(index, ((0, len(text)),)):
                pieces.append(Piece(offset, index, low, high - low))
                offset += high - low + len(WALL)
            offset += len(after) - (len(WALL) if self._windows.get(index, True) else 0)
        for group in self._joined:
            offset += 1
            for index, _, start, end in group:
                pieces.append(Piece(offset, index, start, end - start))
                offset += end - start
        return pieces

    @cached_property
    def _piece_offsets(self) -> list[int]:
        return [piece.offset for piece in self._pieces]

    def places(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return the leaves that a span of the text touches, each with a span of its own bytes."""
        index = max(0, bisect_right(self._piece_offsets, start) - 1)
        found: list[tuple[int, int, int]] = []
        while index < len(self._pieces) and (piece := self._pieces[index]).offset < end:
            index += 1
            low, high = max(start, piece.offset), min(end, piece.offset + piece.size)
            if low < high and piece.leaf >= 0:
                shift = piece.start - piece.offset
                found.append((piece.leaf, low + shift, high + shift))
        return found


_BYTE_MARKS: Final = {kind: (before.encode(), after.encode()) for kind, (before, after) in _MARKS.items()}
