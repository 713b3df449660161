"""Views read a buffer another way, and know where each span of theirs came from."""

from __future__ import annotations

from fractions import Fraction

import pytest

from proxy.redact import views
from proxy.redact.unicode_fold import FOLD
from proxy.redact.views import (
    ESCAPES,
    SEPARATOR,
    ChainedView,
    DecodedView,
    Escape,
    FoldedView,
    Segments,
    UnescapedView,
    WithoutNuls,
    escapes_in,
    part_starts,
)


def test_views_know_where_they_came_from():
    text = "é plain АБ tail".encode()
    folded = FoldedView(text, FOLD)
    start = folded.data.index(b"A")
    low, high = folded.origin(start, start + 1)
    assert text[low:high].decode() == "\u0410"
    percent = next(escape for escape in ESCAPES if escape.marker == b"%")
    unescaped = UnescapedView(b"ab%43d%zz%45 x", percent)
    assert unescaped.data.startswith(b"abCd%zzE")
    assert unescaped.origin(2, 3) == (2, 5)
    assert unescaped.origin(3, 4) == (5, 6)
    assert unescaped.origin(7, 8) == (9, 12)
    assert WithoutNuls(b"a\x00b\x00c").origin(1, 3) == (2, 5)


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.marker.decode())
def test_escapes_are_decoded_between_markers_that_are_none_and_backslashes_that_are_text(escape: Escape):
    good, stray = escape.marker + b"41" + escape.tail, escape.marker + b"4z"
    view = UnescapedView(good + stray + b"\\n'" + good + escape.marker, escape)
    assert view.data == b"A" + stray + b"\\n'A" + escape.marker + b"\n"


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.marker.decode())
def test_a_large_text_full_of_escapes_is_decoded_as_one_and_traced_back(escape: Escape):
    word = escape.marker + b"41" + escape.tail + b"b \\\x00" + escape.marker + b"4z\n"
    text = word * (80_000 // len(word))
    view = UnescapedView(text, escape)
    plain = b"Ab \\\n" + escape.marker + b"4z\n"  # no run has a NUL
    assert view.data == plain * (80_000 // len(word)) + b"\n"
    for number in (0, 7, 4000):
        start = number * len(word)
        at = number * len(plain)
        assert view.origin(at, at + 1) == (start, start + len(escape.marker) + 2 + len(escape.tail))
        assert view.origin(at + 1, at + 2) == (view.origin(at, at + 1)[1], view.origin(at, at + 1)[1] + 1)


def test_the_origin_of_a_decoded_byte_is_its_whole_segment():
    segments = Segments([3, 20], [11, 28], [b"QUJDREVG", b"R0hJSktM"])
    view = DecodedView(segments, b"ABCDEF" + SEPARATOR + b"GHIJKL", segments.bodies, Fraction(3, 4))
    assert view.origin(0, 1) == (3, 11)
    assert view.origin(9, 15) == (20, 28)
    assert view.origin(5, 10) == (3, 28)


def test_a_view_of_a_view_leads_to_the_bottom():
    lower = UnescapedView(b"say %41%00%42 now", next(escape for escape in ESCAPES if escape.marker == b"%"))
    view = ChainedView(WithoutNuls(lower.data), lower)
    at = view.data.index(b"AB")
    assert view.origin(at, at + 2) == (4, 13)


def test_only_lines_that_are_not_plain_are_folded():
    text = "a plain line\n\uff21\uff22\uff23 and more\nplain again".encode()
    assert FoldedView(text, FOLD).data == b"ABC and more"
    assert FoldedView(b"plain", FOLD).data == b""


def test_far_into_a_large_text_a_disguise_is_folded_and_traced_back():
    text = b"x" * 9000 + b"\n" + "key \u0410B".encode() + b"\n" + b"y" * 9000
    view = FoldedView(text, FOLD)
    assert view.data == b"key AB"
    assert text[slice(*view.origin(4, 5))].decode() == "\u0410"


@pytest.mark.parametrize("size", [0, views._LARGE])
@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.marker.decode())
def test_every_kind_of_escape_is_seen_in_small_and_large_data(escape: Escape, size: int):
    data = b" " * size + escape.marker + b"41" + escape.tail
    assert escape in escapes_in(data)


@pytest.mark.parametrize("data", [b"plain", b"100% sure", b"R&D", b"C:\\users", b"&#65;"])
def test_a_marker_alone_is_no_escape(data: bytes):
    assert escapes_in(data) == []


def test_without_hyperscan_the_same_escapes_are_seen(monkeypatch: pytest.MonkeyPatch):
    data = b"%41 \\x41 &#x41;"
    found = escapes_in(data)
    monkeypatch.setattr(views, "AVAILABLE", False)
    assert escapes_in(data) == found
    assert [escape.marker for escape in found] == [b"%", b"\\x", b"&#x"]


@pytest.mark.parametrize(("sizes", "starts"), [([], []), ([4], [0]), ([4, 0, 2], [0, 4, 4])])
def test_parts_start_where_those_before_them_end(sizes: list[int], starts: list[int]):
    assert part_starts(sizes) == starts
