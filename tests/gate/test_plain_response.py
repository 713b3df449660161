"""Pages: held and examined where a rule asks, in pieces where they are too large."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from proxy.core.model import Denial
from proxy.gate.plain_response import PageWatch
from proxy.injection.content import REMOVED
from tests.gate.test_incoming import CONTEXT, ORDER, World, rules

AT = replace(CONTEXT, target="/news", session=None)
PAGE = f"<html><body><p>News.</p><p>{ORDER}</p></body></html>".encode()
STRIP = rules("id: s, action: strip")


def watch(world: World, media_type: str = "text/html", coding: str | None = None) -> PageWatch:
    made = world.gate.pages.watch(AT, [media_type], [coding] if coding else [])
    assert made is not None
    return made


def test_nothing_is_held_where_no_rule_asks(tmp_path):
    assert World(tmp_path, "").gate.pages.watch(AT, ["text/html"], []) is None
    only_results = World(tmp_path, rules("id: r, action: strip, on: [results]"))
    assert only_results.gate.pages.watch(AT, ["text/html"], []) is None


def test_pictures_are_not_held(tmp_path):
    assert World(tmp_path, STRIP).gate.pages.watch(AT, ["image/png"], []) is None


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_strip(tmp_path, coding):
    body = gzip.compress(PAGE) if coding else PAGE
    left = watch(World(tmp_path, STRIP), coding=coding).take(body)
    assert left == PAGE.replace(ORDER.encode(), REMOVED.encode())


def test_a_clean_page_passes_as_it_is(tmp_path):
    assert watch(World(tmp_path, STRIP)).take(b"<p>News.</p>") is None


def test_withhold_and_flag(tmp_path):
    denial = watch(World(tmp_path, rules("id: w, action: withhold"))).take(PAGE)
    assert isinstance(denial, Denial)
    assert (denial.reason, denial.rule) == ("injected_instructions", "w")
    world = World(tmp_path, rules("id: f, action: flag"))
    assert watch(world).take(PAGE) is None
    assert world.notes == [("wiki.example.com", None, ("untrusted",))]


def test_json_stays_json(tmp_path):
    left = watch(World(tmp_path, STRIP), "application/json").take(json.dumps({"a": ORDER, "b": [1, None]}).encode())
    assert isinstance(left, bytes)
    assert json.loads(left) == {"a": REMOVED, "b": [1, None]}


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-32"])
def test_other_charsets_are_read(tmp_path, charset):
    left = watch(World(tmp_path, STRIP), f"text/plain; charset={charset}").take(ORDER.encode(charset))
    assert isinstance(left, bytes)
    assert b"evil" not in left


@pytest.mark.parametrize(("media_type", "coding"), [("text/html", "gzip"), ("text/html; charset=klingon", None)])
def test_what_cannot_be_read_is_withheld_where_a_rule_may_withhold(tmp_path, media_type, coding):
    assert isinstance(watch(World(tmp_path, STRIP), media_type, coding).take(b"\0\1 nothing"), Denial)
    assert watch(World(tmp_path, rules("id: f, action: flag")), media_type, coding).take(b"\0\1 nothing") is None


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [7, 1000, 100_000])
def test_a_stream_ends_before_the_passage(tmp_path, size):
    page = watch(World(tmp_path, STRIP))
    sent = b""
    for piece in pieces(b"word " * 5000 + ORDER.encode() + b" word" * 5000, size):
        if (passed := page.feed(piece)) is None:
            break
        sent += passed
    else:
        pytest.fail("the stream was not cut")
    assert b"evil" not in sent


def test_a_clean_stream_passes_whole(tmp_path):
    page = watch(World(tmp_path, STRIP), coding="gzip")
    data = gzip.compress(b"word " * 50_000)
    sent = b"".join(page.feed(piece) or b"" for piece in pieces(data, 100)) + page.close()
    assert sent == data


def test_a_stream_that_cannot_be_read_is_cut(tmp_path):
    assert watch(World(tmp_path, STRIP), coding="gzip").feed(b"no gzip at all") is None
    flagging = watch(World(tmp_path, rules("id: f, action: flag")), coding="gzip")
    assert flagging.feed(b"no gzip at all") == b"no gzip at all"


def test_what_streams_by_its_nature_does_not_wait(tmp_path):
    page = watch(World(tmp_path, STRIP), "application/x-ndjson")
    assert page.streams
    assert page.feed(b'{"a": 1}\n') == b'{"a": 1}\n'
    assert page.feed(json.dumps({"a": ORDER}).encode()) is None
