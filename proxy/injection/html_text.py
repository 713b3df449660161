"""The text of an HTML page: what a person sees, what only a model gets, and where each word stands in the page. Pure.

One pass with a regular expression that cannot backtrack; no tree is built. Texts that nobody sees (comments,
attributes, hidden elements) follow the visible text, so that neither cuts the other's sentences.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOKEN: Final = re.compile(
    rb"<!--(?P<comment>.*?)(?:--!?>|\Z)"
    rb"|<(?P<end>/?)(?P<name>[A-Za-z][^\s/>]{0,40})(?P<rest>(?:[^>\"']++|\"[^\"]*+\"|'[^']*+'|[\"'])*+)(?:>|\Z)",
    re.DOTALL,
)
_ATTRIBUTE: Final = re.compile(rb"([A-Za-z_:@][\w:.-]*+)(?:\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s>\"']++)))?")
_RAW: Final = {name: re.compile(rb"</%b" % name, re.IGNORECASE) for name in (b"script", b"style")}
_SPOKEN: Final = frozenset((b"alt", b"title", b"aria-label", b"aria-description", b"placeholder", b"content", b"value"))
_INLINE: Final = frozenset(
    b"a abbr b bdi bdo big code del em font i ins kbd label mark q s small span strong sub sup tt u wbr".split()
)
_VOID: Final = frozenset(b"area base br col embed hr img input link meta param source track wbr".split())
_UNSEEN_ELEMENTS: Final = frozenset((b"template", b"noscript", b"title"))
_UNSEEN_STYLE: Final = re.compile(
    rb"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0?(?:\.0\d*)?\s*(?:[;!}\"']|$)"
    rb"|font-size\s*:\s*0?(?:\.\d+)?(?:px|pt|em|rem|%)?\s*(?:[;!}\"']|$)|font-size\s*:\s*[01]px"
    rb"|color\s*:\s*(?:white|transparent|#fff(?:fff)?(?:ff)?\b|rgba?\(\s*255\s*,\s*255\s*,\s*255|rgba\([^)]{0,40},\s*0?\.?0?\s*\))"
    rb"|(?:left|top|right|bottom|text-indent|margin-left|margin-top)\s*:\s*-\d{3,}"
    rb"|(?:max-)?(?:width|height)\s*:\s*[01](?:px|em|rem)?\s*(?:[;!}\"']|$)|clip(?:-path)?\s*:\s*(?:rect\(\s*0|inset\(\s*(?:50|100))"
    rb"|transform\s*:\s*scale\(\s*0",
    re.IGNORECASE,
)
_SELECTOR: Final = re.compile(rb"([.#])([\w-]+)\s*(?:,|$)")
_WALL: Final = b"\n" * 400  # so much between them that no passage reaches from what is seen to what is not
_SHORTEST: Final = 12  # an attribute's value below that says nothing
LOOKS: Final = re.compile(
    rb"<(?:!doctype|html|head|body|div|p|span|table|ul|a|img|h[1-6]|br|section|article)\b[^>]{0,2000}>", re.IGNORECASE
)


class Slice(NamedTuple):
    """A piece of the text: where it begins there, where it stands in the page, and whether anybody sees it."""

    at: int
    start: int
    end: int
    exact: bool
    """Whether it stands in the page byte by byte as it stands in the text."""


class HtmlText:
    """The text of a page. `hidden` are spans of `text` that no person sees."""

    def __init__(self, page: bytes) -> None:
        self._page = page
        self._slices: list[Slice] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._aside: list[tuple[int, int]] = []
        self._read()
        visible = self._size
        self._add_asides()
        self.text = b"".join(self._parts)
        self.hidden: Sequence[tuple[int, int]] = ((visible, self._size),) if self._size > visible else ()
        self._starts = [each.at for each in self._slices]

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Return the spans of the page that a span of the text stands for, without the tags between them."""
        for each in self._slices[max(0, bisect_right(self._starts, start) - 1) :]:
            if each.at >= end:
                return
            size = each.end - each.start
            if each.exact:
                first, last = max(0, start - each.at), min(size, end - each.at)
                if first < last:
                    yield each.start + first, each.start + last
            else:
                yield each.start, each.end

    def _put(self, start: int, end: int) -> None:
        piece = self._page[start:end]
        plain = piece if b"&" not in piece else html.unescape(piece.decode("utf-8", "replace")).encode()
        self._slices.append(Slice(self._size, start, end, plain is piece))
        self._parts.append(plain)
        self._size += len(plain)

    def _gap(self) -> None:
        self._parts.append(b"\n\n")
        self._size += 2

    def _add_asides(self) -> None:
        if self._aside:
            self._parts.append(_WALL)
            self._size += len(_WALL)
        for start, end in self._aside:
            self._gap()
            self._put(start, end)

    def _read(self) -> None:
        page, at, hidden_by, depth = self._page, 0, b"", 0
        unseen = _hidden_names(page)
        while (token := _TOKEN.search(page, at)) is not None:
            self._text(at, token.start(), hidden=bool(hidden_by))
            at = token.end()
            name = token["name"].lower() if token["name"] else b""
            if not name:
                self._aside.append(token.span("comment"))
                continue
            if name not in _INLINE and not hidden_by:
                self._gap()
            if token["end"]:
                depth -= name == hidden_by
                hidden_by = hidden_by if depth > 0 else b""
                continue
            if name in _RAW:
                end = _RAW[name].search(page, at)
                at = end.start() if end else len(page)
                continue
            is_unseen = self._attributes(token, unseen) or name in _UNSEEN_ELEMENTS
            if name == hidden_by:
                depth += 1
            elif is_unseen and not hidden_by and name not in _VOID:
                hidden_by, depth = name, 1
        self._text(at, len(page), hidden=bool(hidden_by))

    def _text(self, start: int, end: int, *, hidden: bool) -> None:
        if start < end:
            if hidden:
                self._aside.append((start, end))
            else:
                self._put(start, end)

    def _attributes(self, token: re.Match[bytes], unseen: frozenset[bytes]) -> bool:
        """Take what attributes say; return whether they hide their element."""
        hides, base = False, token.start("rest")
        for found in _ATTRIBUTE.finditer(token["rest"]):
            name = found[1].lower()
            group = next((index for index in (2, 3, 4) if found[index] is not None), 0)
            value = found[group] if group else b""
            if name == b"hidden" or (name == b"aria-hidden" and value.lower() == b"true"):
                hides = True
            elif name == b"style":
                hides = hides or _UNSEEN_STYLE.search(value) is not None
            elif name in (b"class", b"id"):
                mark = b"." if name == b"class" else b"#"
                hides = hides or any(mark + each in unseen for each in value.split())
            elif len(value) >= _SHORTEST and (name in _SPOKEN or name.startswith(b"data-")):
                self._aside.append((base + found.start(group), base + found.end(group)))
        return hides


def _hidden_names(page: bytes) -> frozenset[bytes]:
    """Return the classes and ids that the page's own style sheets hide."""
    if b"<style" not in page.lower():
        return frozenset()
    names: set[bytes] = set()
    for sheet in re.finditer(rb"<style[^>]*+>(.*?)(?:</style|\Z)", page, re.DOTALL | re.IGNORECASE):
        for rule in sheet[1].split(b"}"):
            selector, _, body = rule.rpartition(b"{")
            if _UNSEEN_STYLE.search(body):
                names.update(mark + name for mark, name in _SELECTOR.findall(selector[-400:].strip()))
    return frozenset(names)
