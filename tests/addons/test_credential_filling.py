"""The connection to a server sees a request with its values; all others see it as it came."""

from __future__ import annotations

from mitmproxy import http

from addons import flow_state as flows
from addons.credential_filling import fill_in, filled, needs_filling, take_back
from proxy.core.vault import Filling, Secret
from tests.addons.http_flows import make_flow

HELD = "ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VALUES = {HELD: Secret(b"the value")}


def request() -> http.Request:
    return http.Request.make(
        "POST",
        f"https://a.test/{HELD}?k={HELD}",
        f"old {HELD}",
        {
            "X-Key": HELD,
            "Range": "bytes=0-1",
            "If-Range": "x",
            "Accept-Encoding": "gzip",
            "Content-Encoding": "gzip",
            "Content-MD5": "x",
        },
    )


def test_a_copy_has_the_values() -> None:
    came = request()
    made = filled(came, Filling(("key",), (), VALUES, {}, Secret(b"new body")))
    assert made.path == "/the%20value?k=the%20value"
    assert dict(made.headers) == {"X-Key": "the value", "Accept-Encoding": "identity", "content-length": "8"}
    assert made.raw_content == b"new body"
    assert (came.path, came.headers["x-key"]) == (f"/{HELD}?k={HELD}", HELD)


def test_a_body_that_needs_nothing_stays() -> None:
    came = request()
    came.stream = True
    made = filled(came, Filling(("key",), (), VALUES))
    assert made.raw_content == came.raw_content
    assert made.headers["content-encoding"] == "gzip"
    assert "range" not in made.headers
    assert made.stream is True


def test_a_flow_shows_its_values_between_the_two() -> None:
    flow = make_flow({}, X_Key=HELD)
    came = flow.request
    fill_in(flow)
    assert flow.request is came
    flows.state_of(flow).filling = Filling(("key",), (), VALUES)
    for _ in range(2):
        fill_in(flow)
        assert flow.request.headers["x-key"] == "the value"
    for _ in range(2):
        take_back(flow)
        assert flow.request is came


def test_what_is_text_alone_fills_nothing() -> None:
    assert not needs_filling(None)
    assert not needs_filling(Filling(as_text=("key",)))
    assert needs_filling(Filling(("key",)))
