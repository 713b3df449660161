"""What a message or a page says, as one text: JSON values by their strings, HTML by its words. Pure.

Passages are found in all strings together, since a sentence may be cut in two by the end of one. Each string knows how
to cut a passage out of itself.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from proxy.injection.html_text import LOOKS, HtmlText
from proxy.injection.passages import Passage, find_passages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

REMOVED: Final = "[removed by Interlock: text that speaks to the model]"
PLUMBING: Final = frozenset(
    ("jsonrpc", "id", "type", "role", "mimeType", "kind", "method", "resultType", "name", "uri")
)
"""Keys whose strings are the protocol's own: they stand between the pieces of a text without being part of it."""
_SHORT_NAME: Final = 20
_LONGEST_PATH: Final = 200
_COMMENTS: Final = ((b"<!--", b"-->"), (b"[//]:", b"\n"), (b"[comment]:", b"\n"))
# Without any of these a string is read as it is.
_MARKS: Final = (b"&#", b"</", *(begin for begin, _ in _COMMENTS))
_SHALLOW: Final = 4  # levels whose paths are never cut
_NOT_TEXT: Final = ("image/", "audio/", "video/", "font/", "model/")
_ARCHIVES: Final = frozenset(
    f"application/{name}"
    for name in (
        "zip",
        "gzip",
        "x-gzip",
        "x-tar",
        "pdf",
        "wasm",
        "x-7z-compressed",
        "zstd",
        "x-bzip2",
        "vnd.rar",
        "java-archive",
    )
)


def is_text(media_type: str) -> bool:
    """Return whether a response of this type may be read as text; whatever is not known to be something else may."""
    return not media_type.startswith(_NOT_TEXT) and media_type not in _ARCHIVES


class Piece:
    """A text that stands by itself: a string of a message, or a page."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.text = raw
        self.hidden: Sequence[tuple[int, int]] = ()
        if b"<!--" in raw or b"[//]:" in raw or b"[comment]:" in raw:
            self.hidden = list(_comments(raw))

    def _spans(self, start: int, end: int) -> Iterable[tuple[int, int]]:
        return ((start, end),)

    def without(self, spans: Iterable[tuple[int, int]]) -> bytes:
        """Return the raw text without what spans of `text` stand for, with a mark in the place of each."""
        out, at = bytearray(), 0
        for start, end in spans:
            mark = REMOVED.encode()
            for low, high in sorted(self._spans(start, end)):
                out += self._raw[at : max(at, low)] + mark
                at, mark = max(at, high), b""
        return bytes(out + self._raw[at:])


class HtmlPiece(Piece):
    """A page, or a string that holds one."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._html = HtmlText(raw)
        self.text, self.hidden = self._html.text, self._html.hidden

    def _spans(self, start: int, end: int) -> Iterable[tuple[int, int]]:
        return self._html.spans(start, end)


class Content:
    """Pieces, end to end, and the passages in them."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._starts: list[int] = []
        at = 0
        for piece in pieces:
            self._starts.append(at)
            at += len(piece.text) + 1
        hidden = [
            (start + low, start + high)
            for start, piece in zip(self._starts, pieces, strict=True)
            for low, high in piece.hidden
        ]
        self.passages = find_passages(b"\n".join(piece.text for piece in pieces), hidden)

    def spans_of(self, passages: Iterable[Passage]) -> dict[int, list[tuple[int, int]]]:
        """Return by the number of its piece what spans of it passages cover."""
        found: dict[int, list[tuple[int, int]]] = {}
        for passage in passages:
            for index in range(max(0, bisect_right(self._starts, passage.start) - 1), len(self._pieces)):
                start = self._starts[index]
                if start >= passage.end:
                    break
                low, high = max(0, passage.start - start), min(len(self._pieces[index].text), passage.end - start)
                if low < high:
                    found.setdefault(index, []).append((low, high))
        return found


class PageContent(Content):
    """A page as one piece."""

    def __init__(self, data: bytes, media_type: str) -> None:
        self._piece = HtmlPiece(data) if _is_html(data, media_type) else Piece(data)
        super().__init__((self._piece,))

    def without(self, passages: Iterable[Passage]) -> bytes:
        """Return the page without passages."""
        return self._piece.without(self.spans_of(passages).get(0, ()))


class ValueContent(Content):
    """A JSON value by its strings, keys included."""

    def __init__(self, value: Any) -> None:
        self._value = value
        # Most values hold nothing, and to know that needs no account of what stands where.
        if (whole := plain_text(value)) is not None and not find_passages(whole):
            self.passages = ()
            return
        self._paths = list(_strings(value))
        super().__init__([_piece(text) for _, text, _ in self._paths])

    def places(self, passages: Iterable[Passage]) -> tuple[str, ...]:
        """Return where passages stand, as paths."""
        return tuple(dict.fromkeys(self._paths[index][0] for index in self.spans_of(passages)))

    def without(self, passages: Iterable[Passage]) -> Any:
        """Return the value without passages. Raises ValueError where one stands in a name, which cannot be cut."""
        spans = self.spans_of(passages)
        if not all(self._paths[index][2] for index in spans):
            raise ValueError("a passage stands in a name")
        number = -1

        def change(text: str) -> str:
            nonlocal number
            number += 1
            cut = spans.get(number)
            return text if cut is None else self._pieces[number].without(cut).decode("utf-8", "replace")

        return _mapped(self._value, change)


def _comments(raw: bytes) -> Iterator[tuple[int, int]]:
    """Return the comments of Markdown, which no reader sees."""
    for begin, end in _COMMENTS:
        at = raw.find(begin)
        while at >= 0:
            stop = raw.find(end, at)
            stop = len(raw) if stop < 0 else stop + len(end)
            yield at, stop
            at = raw.find(begin, stop)


def _piece(text: str) -> Piece:
    raw = text.encode("utf-8", "replace")
    return HtmlPiece(raw) if b"&#" in raw or (b"</" in raw and LOOKS.search(raw)) else Piece(raw)


def _is_html(data: bytes, media_type: str) -> bool:
    return (
        "html" in media_type
        or b"&#" in data
        or (not media_type.endswith("json") and LOOKS.search(data, 0, 1 << 12) is not None)
    )


def _strings(value: Any) -> Iterator[tuple[str, str, bool]]:
    """Return every string with its path, and whether it can be changed: what is said, then names and the like.

    In two parts, because a sentence may go on in the next string, and keys would stand in its middle.
    """
    names: list[tuple[str, str, bool]] = []
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            if path.rpartition(".")[2] in PLUMBING:
                names.append((path, item, False))
            else:
                yield path, item, True
        elif isinstance(item, dict):
            names.extend((path, key, False) for key in item if len(key) > _SHORT_NAME)
            stack.extend((_below(path, key), item[key]) for key in reversed(item))
        elif isinstance(item, list):
            stack.extend((f"{path}[]"[:_LONGEST_PATH], inner) for inner in reversed(item))
    # So much between them that no passage reaches from one part into the other.
    yield from ([("", "\n" * 400, False), *names] if names else ())


def plain_text(value: Any) -> bytes | None:
    """Return the text that the pieces of a value make; None where one of them is a page or has comments, or is deep."""
    said: list[str] = []
    names: list[str] = []
    stack: list[tuple[str, Any, int]] = [("", value, _SHALLOW)]
    while stack:
        name, item, depth = stack.pop()
        kind = type(item)
        if kind is str:
            (names if name in PLUMBING else said).append(item)
        elif kind is dict or kind is list:
            if not depth:
                return None
            if kind is list:
                stack.extend([("", inner, depth - 1) for inner in reversed(item)])
                continue
            names += [key for key in item if len(key) > _SHORT_NAME]
            # A name with a dot in it is a path of its own to `_strings`.
            stack.extend(
                [
                    (key if "." not in key else key[:60].rpartition(".")[2], item[key], depth - 1)
                    for key in reversed(item)
                ]
            )
    texts = [*said, "\n" * 400, *names] if names else said
    whole = "\n".join(texts).encode("utf-8", "replace")
    return None if any(mark in whole for mark in _MARKS) else whole


def _below(path: str, key: str) -> str:
    return f"{path}.{key[:60]}"[-_LONGEST_PATH:] if path else key[:60]


def _mapped(value: Any, change: Callable[[str], str], key: str = "") -> Any:
    """Return a value with what `_strings` lets change changed, in its order."""
    if isinstance(value, str):
        return value if key in PLUMBING else change(value)
    if isinstance(value, dict):
        return {name: _mapped(inner, change, name[:60]) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, change, f"{key}[]") for inner in value]
    return value


def read_page(data: bytes, media_type: str) -> PageContent | ValueContent:
    """Return what a page says: JSON by its strings, HTML by its words, anything else as it is."""
    if "json" in media_type:
        try:
            return ValueContent(json.loads(data))
        except (ValueError, RecursionError):
            pass
    return PageContent(data, media_type)
