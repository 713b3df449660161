"""Reads a text in every way that a model might: as it is, folded, decoded, spelt out, in rot13 and in leet. Pure.

Decoding is `redact`'s, which knows for every match three encodings deep which bytes of the text it came from. The
other readings are only made where the text shows a sign of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.core.model import frozen
from proxy.injection.matcher import encodings_among, find_signals, find_spaced
from proxy.injection.signals import Signal
from proxy.redact.decode import MAX_DEPTH, Layer, RootLayer, next_layer
from proxy.redact.unicode_fold import FOLD
from proxy.redact.views import FoldedView, escapes_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.redact.decode import EncodingSigns
    from proxy.redact.views import Span

MATCH: Final = 64
"""Bytes before a match's end that count as the match: how long it is, hyperscan does not say."""
MAX_LAYER: Final = 4 << 20
_ROT13: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", b"NOPQRSTUVWXYZABCDEFGHIJKLMnopqrstuvwxyzabcdefghijklm"
)
_LEET: Final = bytes.maketrans(b"013457@$!|+", b"oieastasiit")
_DIGIT: Final = re.compile(rb"[A-Za-z][013457@$!|+]|[013457@$!|+][A-Za-z]")
# Single letters with something between them, for at least two words of them.
_SPELT: Final = re.compile(rb"(?<![A-Za-z])[A-Za-z](?:[ \t.\-_*|/,]{1,3}[A-Za-z](?![A-Za-z])){9,}+")
_TAGS: Final = re.compile("[\U000e0020-\U000e007e]{6,}+")
_SMUGGLED: Final = Signal("hidden", 8, "")
# Characters between letters that nobody sees, and letters of two alphabets in one word.
_DISGUISE: Final = re.compile(
    "[\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e0fff]"
    "|[A-Za-z][\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff][A-Za-z]"
)


@frozen()
class Mark:
    """A signal in some reading of a text: where in the text itself it is, and whether it was disguised there."""

    start: int
    end: int
    signal: Signal
    disguised: bool = False


def read_marks(data: bytes) -> list[Mark]:
    """Return every signal of a text in UTF-8, in whichever reading it was found."""
    found = find_signals(data)
    if not found and _reads_one_way(data):
        return []  # nearly every text ends here
    marks = [Mark(max(0, end - MATCH), end, signal) for signal, end in found if signal.weight]
    signs = {signal.kind for signal, end in found if not signal.weight and _is_sign(signal, data, end)}
    if not data.isascii():
        marks += _folded(data)
        marks += _smuggled(data)
    plain = {(mark.signal, mark.end >> 6) for mark in marks}
    for kind, table in (("rot13", _ROT13), ("leet", _LEET)):
        marks += _new(plain, _translated(data, table)) if kind in signs else ()
    marks += _new(plain, _decoded(data, encodings_among(found)))
    marks += _spelt_out(data) if "spelt" in signs else ()
    return marks


def _reads_one_way(data: bytes) -> bool:
    """Return whether a text without signs of another reading has none: it is ASCII, and nothing in it is escaped."""
    return data.isascii() and not escapes_in(data)


def _is_sign(signal: Signal, data: bytes, end: int) -> bool:
    """Return whether a word shows that another reading is needed; a leet word is one with a digit in it."""
    return signal.kind != "leet" or _DIGIT.search(data, max(0, end - 12), end) is not None


def _new(plain: set[tuple[Signal, int]], marks: Iterator[Mark]) -> list[Mark]:
    """Return the marks that the text does not show as it is; every decoding has the plain text in it as well."""
    return [mark for mark in marks if not any((mark.signal, (mark.end >> 6) + by) in plain for by in (-1, 0, 1))]


def _folded(data: bytes) -> Iterator[Mark]:
    view = FoldedView(data, FOLD)
    for signal, end in find_signals(view.data):
        if signal.weight:
            start, stop = view.origin(max(0, end - MATCH), end)
            yield Mark(start, stop, signal, _DISGUISE.search(data[start:stop].decode("utf-8", "ignore")) is not None)


def _smuggled(data: bytes) -> Iterator[Mark]:
    """Return text in tag characters, which nobody sees and models read."""
    if b"\xf3\xa0" not in data:
        return
    text = data.decode("utf-8", "replace")
    for run in _TAGS.finditer(text):
        start = len(text[: run.start()].encode())
        yield Mark(start, start + len(run[0].encode()), _SMUGGLED)


def _translated(data: bytes, table: bytes) -> Iterator[Mark]:
    for signal, end in find_signals(data.translate(table)):
        if signal.weight > 1:
            yield Mark(max(0, end - MATCH), end, signal, disguised=True)


def _decoded(data: bytes, signs: EncodingSigns) -> Iterator[Mark]:
    layer: Layer | None = RootLayer(data)
    for _ in range(MAX_DEPTH):
        layer = next_layer(layer, layer.data[:MAX_LAYER], signs) if layer is not None else None
        if layer is None:
            return
        found = find_signals(layer.data)
        signs = encodings_among(found)
        for signal, end in found:
            if signal.weight:
                span: Span = layer.root_span(max(0, end - MATCH), end)
                yield Mark(*span, signal, disguised=True)


def _spelt_out(data: bytes) -> Iterator[Mark]:
    for run in _SPELT.finditer(data):
        letters = bytes(byte for byte in run[0] if chr(byte).isalpha())
        for signal, _ in find_spaced(letters):
            yield Mark(*run.span(), signal, disguised=True)
