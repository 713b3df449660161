"""The text of pages: what is seen, what is not, and where it stands."""

from __future__ import annotations

import pytest

from proxy.injection.html_text import HtmlText

WORDS = b"the hidden words"


def seen_and_hidden(page: bytes) -> tuple[bytes, bytes]:
    read = HtmlText(page)
    at = read.hidden[0][0] if read.hidden else len(read.text)
    return read.text[:at], read.text[at:]


@pytest.mark.parametrize(
    "page",
    [
        b"<!-- the hidden words -->",
        b"<!-- the hidden words",
        b"<div hidden>the hidden words</div>",
        b"<div style='display:none'>the hidden words</div>",
        b"<div style='DISPLAY : NONE'><p>the hidden words</p></div>",
        b'<p style="visibility:hidden">the hidden words</p>',
        b'<p style="opacity:0">the hidden words</p>',
        b'<p style="font-size:0">the hidden words</p>',
        b'<p style="font-size: 1px; color: red">the hidden words</p>',
        b'<p style="color:white">the hidden words</p>',
        b'<p style="color: #FFF; background: #ffffff">the hidden words</p>',
        b'<p style="color: rgba(0,0,0,0)">the hidden words</p>',
        b'<p style="position:absolute; left:-9999px">the hidden words</p>',
        b'<p style="width:0; height:0">the hidden words</p>',
        b"<p aria-hidden=true>the hidden words</p>",
        b"<style>.a, .b{display:none}</style><p class='x b'>the hidden words</p>",
        b"<style>#q{font-size:0}</style><p id=q>the hidden words</p>",
        b"<template>the hidden words</template>",
        b"<img alt='the hidden words'>",
        b'<a title="the hidden words" href=x>',
        b'<a aria-label="the hidden words">',
        b"<meta name=description content='the hidden words'>",
        b"<input type=hidden value='the hidden words'>",
        b"<i data-note='the hidden words'></i>",
    ],
)
def test_what_nobody_sees_is_told_from_the_rest(page: bytes) -> None:
    seen, hidden = seen_and_hidden(b"<p>Seen.</p>" + page + b"<p>Also seen.")
    assert WORDS not in seen
    assert WORDS in hidden


def test_what_is_seen_is_not_hidden() -> None:
    seen, hidden = seen_and_hidden(b"<style>.x{color:red}</style><p class=x style='color:#333;width:10px'>Words</p>")
    assert b"Words" in seen
    assert hidden == b""


def test_tags_inside_a_word_do_not_cut_it() -> None:
    assert b"ignore this" in HtmlText(b"ig<b>no</b>re <span>th</span>is").text


def test_scripts_and_styles_say_nothing() -> None:
    assert b"words" not in HtmlText(b"<script>var a = 'words'</script><style>words{}</style>ok").text


def test_entities_are_characters() -> None:
    assert b"ignore this" in HtmlText(b"&#105;gnore&#32;this").text


def test_a_hidden_element_ends_where_it_ends() -> None:
    seen, hidden = seen_and_hidden(b"<div hidden><div>one</div>two</div><p>three</p>")
    assert b"three" in seen
    assert b"one" in hidden
    assert b"two" in hidden


def test_spans_lead_back_to_the_page_without_its_tags() -> None:
    page = b"<p>ig<b>nore</b> it</p>"
    read = HtmlText(page)
    at = read.text.index(b"ignore")
    assert [page[start:end] for start, end in read.spans(at, at + 9)] == [b"ig", b"nore", b" it"]


@pytest.mark.parametrize("piece", [b"<", b"<!--", b"<a ", b'<a b="', b"<a b='c' ", b"</", b"<style>", b"&#"])
def test_broken_pages_are_read_to_their_end(piece: bytes) -> None:
    assert HtmlText(piece * 20_000).text is not None
