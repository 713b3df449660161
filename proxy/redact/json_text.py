"""A JSON value as one text to scan, and the way back from a span of the text to the leaves of the value.

Pure. The text reads like JSON, so that a detector sees `"password": "…"` whether it comes as a field or as JSON inside
a string. After it come the strings once more, end to end, so that a secret split over them is whole: once in document
order, without the protocol's own words, and once for each name that several of them have.
Nothing recurses: a value may be nested as deep as it likes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, count, repeat
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxy.core.model import Json

type PathStep = str | int  # the key or the index under which something stands in its container
type LeafKind = Literal["key", "string", "number"]

# Bytes of each end of a long string that are joined with its neighbours: a split secret stands at the ends.
FRAGMENT: Final = 256
# Smaller numbers have fewer digits than any card or identity number.
SMALLEST_NUMBER: Final = 1_000_000
_SHORTEST_CODES: Final = 13
_MAX_STEPS: Final = 64
_BINARY: Final = ("blob", "data")
PROTOCOL: Final = frozenset(("type", "role", "audience", "mimeType", "jsonrpc", "resultType"))
_CONTENT: Final = ("text", "image", "audio", "resource", "resource_link", "tool_use", "tool_result")
_PROTOCOL_WORDS: Final = frozenset((*_CONTENT, "user", "assistant", "2.0", "complete", "input_required"))
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")
_MARKS: Final[dict[LeafKind, tuple[tuple[int, int, bytes], tuple[int, int, bytes]]]] = {
    "key": ((-1, 0, b'"'), (-1, 0, b'": ')),
    "string": ((-1, 0, b'"'), (-1, 0, b'"\n')),
    "number": ((-1, 0, b""), (-1, 0, b"\n")),
}
_LINE_END: Final = (-1, 0, b"\n")
BARRIER: Final = b"\x00"  # stands for each masked byte: no detector matches it or looks past it for a keyword
MASK_START: Final = r"\[(?:secret|pii|wallet|shape|custom):"  # matches how every mask begins
UNREADABLE: Final = "\x00"  # stands for a number with more digits than Python prints


class Container(NamedTuple):
    """An object or array of the value, and where it stands."""

    value: dict[str, Any] | list[Any]
    parent: int
    step: PathStep


class JsonLeaf(NamedTuple):
    """A key, string or number of the value, and where it stands."""

    kind: LeafKind
    text: str
    container: int
    step: PathStep


class Document:
    """The leaves of one JSON value, collected in document order."""

    def __init__(self, value: Json) -> None:
        self.value = value
        self.containers: list[Container] = []
        self.leaves: list[JsonLeaf] = []
        stack: list[Iterator[tuple[int, PathStep, Any]]] = [iter([(-1, "", value)])]
        add = self.leaves.append
        while stack:
            for container, step, item in stack[-1]:
                if isinstance(item, str):
                    add(JsonLeaf("string", item, container, step))
                elif isinstance(item, (dict, list)):
                    if isinstance(item, list) and is_text_as_codes(item):
                        add(JsonLeaf("number", bytes(item).decode(), container, step))
                    at = len(self.containers)
                    self.containers.append(Container(item, container, step))
                    stack.append(zip(repeat(at), count(), item) if isinstance(item, list) else self._members(at, item))
                    break
                elif item and abs(item) >= SMALLEST_NUMBER:
                    try:
                        text = repr(item)
                    except ValueError:
                        text = UNREADABLE
                    add(JsonLeaf("number", text, container, step))
            else:
                stack.pop()

    def _members(self, index: int, item: dict[str, Any]) -> Iterator[tuple[int, PathStep, Any]]:
        for key, child in item.items():
            self.leaves.append(JsonLeaf("key", key, index, key))
            yield index, key, child

    def name(self, leaf: JsonLeaf) -> PathStep:
        """Return the key that a leaf stands under, directly or in an array there."""
        if isinstance(leaf.step, str) or leaf.container < 0:
            return leaf.step
        return self.containers[leaf.container].step

    @cached_property
    def joins(self) -> list[list[int]]:
        """Which strings are joined end to end: all but the protocol's own, and those of each name; by their indexes."""
        strings = [
            (index, self.name(leaf), leaf.text) for index, leaf in enumerate(self.leaves) if leaf.kind == "string"
        ]
        groups = [[index for index, name, text in strings if not is_protocol_word(name, text)]]
        by_name: dict[PathStep, list[int]] = {}
        for index, name, _ in strings:
            by_name.setdefault(name, []).append(index)
        if len(by_name) > 1:
            groups += by_name.values()
        return [group for group in groups if len(group) > 1]  # what is in one string alone is found there

    def is_binary(self, leaf: JsonLeaf) -> bool:
        """Return whether MCP has base64 there (images, sounds, blobs), so that readers refuse anything else."""
        if leaf.kind != "string" or leaf.step not in _BINARY:
            return False
        return leaf.step == "blob" or "mimeType" in self.containers[leaf.container].value

    def rewritten(self, changes: Mapping[int, str]) -> Json:
        """Return the value with the leaves in `changes` replaced; the original is left alone."""
        if not changes:
            return self.value
        copies: dict[int, Any] = {}
        keys: dict[int, dict[str, str]] = {}
        for index, text in changes.items():
            leaf = self.leaves[index]
            if leaf.container < 0:
                return text
            copy = self._copy(leaf.container, copies)
            if leaf.kind == "key":
                keys.setdefault(leaf.container, {})[leaf.text] = text
            else:
                copy[leaf.step] = text
        # Keys last: until all is copied and linked, containers are found by their old keys.
        for index, names in keys.items():
            _rename_keys(copies[index], names)
        return copies[0]  # type: ignore[no-any-return]

    def _copy(self, index: int, copies: dict[int, Any]) -> Any:
        """Return the writable copy of a container; what holds it is copied too, up to what is copied already."""
        if (copy := copies.get(index)) is not None:
            return copy
        copy = child = copies[index] = self.containers[index].value.copy()
        while (parent := self.containers[index].parent) >= 0:
            known = parent in copies
            holder = copies[parent] if known else copies.setdefault(parent, self.containers[parent].value.copy())
            holder[self.containers[index].step] = child
            if known:
                break
            index, child = parent, copies[parent]
        return copy

    def path(self, index: int, shown: Mapping[tuple[int, PathStep], str] | None = None) -> str:
        """Return where a leaf is, as `files[0].name`, with the keys in `shown` masked; its last `_MAX_STEPS` steps."""
        container, step = self.leaves[index].container, self.leaves[index].step
        steps: list[str] = []
        while container >= 0 and len(steps) < _MAX_STEPS:
            if isinstance(step, int):
                steps.append(f"[{step}]")
            else:
                key = (shown or {}).get((container, step), step)
                # A key that would read as part of the path is quoted.
                quoted = not key or any(character in key for character in '.[]"*')
                escaped = key.replace("\\", "\\\\").replace('"', '\\"')
                steps.append(f'["{escaped}"]' if quoted else f".{key}")
            container, step = self.containers[container].parent, self.containers[container].step
        path = "".join(reversed(steps))
        return path.removeprefix(".") if container < 0 else f"\N{HORIZONTAL ELLIPSIS}{path}"

    def shown_keys(self, changes: Mapping[int, str]) -> dict[tuple[int, PathStep], str]:
        """Return what paths must show for the keys among `changes`: a path must not show the secret in a key."""
        changed = ((self.leaves[index], text) for index, text in changes.items())
        return {(leaf.container, leaf.step): text for leaf, text in changed if leaf.kind == "key"}


def _rename_keys(copy: dict[str, Any], names: dict[str, str]) -> None:
    """Rename members in their order; number those whose new name is taken, since two secrets may mask alike."""
    members = list(copy.items())
    copy.clear()
    taken = {key for key, _ in members if key not in names}
    for key, child in members:
        name = names.get(key, key)
        if key in names and name in taken:
            name = next(free for number in count(2) if (free := f"{name}~{number}") not in taken)
        taken.add(name)
        copy[name] = child


def is_protocol_word(name: PathStep, text: str) -> bool:
    """Return whether `text` under `name` is a word of the protocol, between the pieces of a split text and in none."""
    return name in PROTOCOL and (text in _PROTOCOL_WORDS or _MEDIA_TYPE.fullmatch(text) is not None)


def is_text_as_codes(item: list[Any]) -> bool:
    """Return whether an array is text written as the codes of its characters."""
    if len(item) < _SHORTEST_CODES or type(item[0]) is not int:
        return False
    return all(type(code) is int and 9 <= code < 127 for code in item)


class ScanText:
    """The text of a document, given the current bytes of its leaves; for those in `windows`, only what they show."""

    def __init__(
        self, document: Document, texts: list[bytes], windows: Mapping[int, Sequence[tuple[int, int]]] | None = None
    ) -> None:
        self._document = document
        self._texts = texts
        # Each part: a leaf by its index, or -1 for what stands between leaves; where in the leaf it starts; its bytes.
        self._parts: list[tuple[int, int, bytes]] = []
        windows = windows or {}
        for index, (leaf, text) in enumerate(zip(document.leaves, texts, strict=True)):
            before, after = _MARKS[leaf.kind]
            if not windows or (shown := windows.get(index)) is None:
                self._parts += (before, (index, 0, text), after)
                continue
            self._parts.append(before)
            for number, (low, high) in enumerate(shown):
                self._parts += ((-1, 0, BARRIER if number else b""), (index, low, text[low:high]))
            self._parts.append(after)
        self.body_size = sum([len(part[2]) for part in self._parts])
        self._join()
        self.data = b"".join([part[2] for part in self._parts])

    def _join(self) -> None:
        for group in self._document.joins:
            self._parts.append(_LINE_END)
            self._add_end_to_end(group)

    def _add_end_to_end(self, leaves: list[int]) -> None:
        for index in leaves:
            text = self._texts[index]
            if len(text) <= 2 * FRAGMENT:
                self._parts.append((index, 0, text))
            else:
                # The line end keeps the two ends of one string from being read as one word.
                end = (index, len(text) - FRAGMENT, text[-FRAGMENT:])
                self._parts += ((index, 0, text[:FRAGMENT]), _LINE_END, end)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate([len(part[2]) for part in self._parts], initial=0))

    def leaf_spans(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return the leaves that a span of the text touches, each with a span of its own bytes."""
        index = max(0, bisect_right(self._starts, start) - 1)
        found: list[tuple[int, int, int]] = []
        while index < len(self._parts) and (offset := self._starts[index]) < end:
            leaf, first, part = self._parts[index]
            index += 1
            if start >= offset and end <= offset + len(part) and leaf >= 0:
                return [(leaf, start - offset + first, end - offset + first)]  # as nearly all are: inside one leaf
            low, high = max(start, offset), min(end, offset + len(part))
            if low < high and leaf >= 0:
                found.append((leaf, low - offset + first, high - offset + first))
        return found
