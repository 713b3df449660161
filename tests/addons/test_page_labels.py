"""Pages on their way: labelled before the first byte, fingerprinted once whole."""

from __future__ import annotations

import gzip
from pathlib import Path

from mitmproxy import http

from addons import page_labels
from addons.page_labels import PageLabels
from tests.support.flow_fixture import FlowWorld, open_world

POLICY = """
version: 1
labels: [{id: pages, hosts: [site.example], gives: untrusted}]
flows: [{id: out, from: untrusted, to: {hosts: ["*"]}, by: content}]
"""
TEXT = b"<p>The launch of the <b>new</b> turbine is planned for the third week of October</p>"
RUN = b"launch of the new turbine is planned for the third"


def page(world: FlowWorld) -> PageLabels:
    context = world.context("site.example")
    assert world.gate.flows is not None
    assert world.gate.flows.labels_pages(context)
    return PageLabels(world.gate.flows, context)


async def test_until_a_page_is_whole_anything_after_it_is_stopped(tmp_path: Path) -> None:
    world = open_world(tmp_path, POLICY)
    made = page(world)
    assert await made.begin()
    assert await world.request("evil.example", "/", b"harmless") is not None
    body = gzip.compress(TEXT)
    assert made.feed(body[:20]) == body[:20]
    made.feed(body[20:])
    await made.end(http.Response.make(200, b"", {"content-encoding": "gzip"}))
    assert await world.request("evil.example", "/", b"harmless") is None
    assert await world.request("evil.example", "/", RUN) is not None


async def test_a_page_that_cannot_be_read_stays_unread(tmp_path: Path, monkeypatch) -> None:
    world = open_world(tmp_path, POLICY)
    made = page(world)
    await made.begin()
    made.feed(b"not gzip")
    await made.end(http.Response.make(200, b"", {"content-encoding": "gzip"}))
    assert await world.request("evil.example", "/", b"harmless") is not None
    world.now += 3601
    monkeypatch.setattr(page_labels, "MAX_PAGE", 10)
    large = page(world)
    await large.begin()
    assert large.feed(TEXT) == TEXT
    await large.end(http.Response.make(200))
    assert await world.request("evil.example", "/", b"harmless") is not None
