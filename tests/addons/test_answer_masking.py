"""The head of an answer is masked, and its body as it comes; its length follows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import http

from addons import answer_masking
from addons import flow_state as flows
from proxy.core.vault import Credential, Secret
from proxy.gate.reflections import Reflections
from tests.addons.http_flows import make_flow
from tests.support.vault_fixture import FakeVault

HELD = "ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VALUE = "the-real-value"
KEY = Credential(name="key", placeholder=HELD)


class Gate:
    """As much of a gate as masking needs."""

    def __init__(self, *, known: bool = True) -> None:
        self.vault = FakeVault(known=((KEY, Secret(VALUE.encode())),) if known else ())
        self.reflections = Reflections(self.vault)
        self.refused: list[str] = []
        self.recorder = SimpleNamespace(record_refusal=lambda _, reason, *__: self.refused.append(reason))


def answered(body: bytes = b"", status: int = 200, method: str = "GET", **headers: str) -> http.HTTPFlow:
    flow = make_flow({}, method=method)
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    flow.response = http.Response.make(status, body, fields)
    return flow


def begun(gate: Any, flow: http.HTTPFlow) -> flows.FlowState:
    answer_masking.begin(gate, flow)
    return flows.state_of(flow)


def test_names_values_and_the_reason_are_masked() -> None:
    flow = answered(Location=f"https://a.test/{VALUE}", **{f"x-{VALUE}": "1"})
    assert flow.response is not None
    flow.response.data.reason = VALUE.encode()
    assert begun(Gate(), flow).mask is not None
    assert flow.response.headers["location"] == f"https://a.test/{HELD}"
    assert f"x-{HELD}" in flow.response.headers
    assert flow.response.reason == HELD


@pytest.mark.parametrize(
    ("flow", "is_masked"),
    [
        (answered(method="HEAD", content_encoding="gzip"), False),
        (answered(status=204), False),
        (answered(status=304, content_encoding="gzip"), False),
        (answered(status=101), False),
        (answered(status=206), True),
        (answered(status=500), True),
    ],
)
def test_only_an_answer_that_has_a_body_is_watched(flow: http.HTTPFlow, is_masked: bool) -> None:
    state = begun(Gate(), flow)
    assert (state.mask is not None) is is_masked


def test_before_a_value_is_given_out_streams_alone_are_watched() -> None:
    gate = Gate(known=False)
    assert begun(gate, answered(content_type="text/html")).mask is None
    assert begun(gate, answered(content_type="text/event-stream; charset=utf-8")).mask is not None
    assert begun(gate, answered(content_type="application/x-ndjson")).mask is not None
    off: Any = SimpleNamespace(reflections=Reflections(None))
    assert begun(off, answered(content_type="text/event-stream")).mask is None


def test_what_goes_on_without_a_length_is_watched_where_there_are_credentials() -> None:
    def log_that_goes_on() -> http.HTTPFlow:
        flow = answered(content_type="text/plain")
        assert flow.response is not None
        del flow.response.headers["content-length"]
        return flow

    gate = Gate(known=False)
    assert begun(gate, log_that_goes_on()).mask is None
    gate.vault.held = (KEY,)
    assert begun(gate, answered(content_type="text/plain")).mask is None
    mask = begun(gate, log_that_goes_on()).mask
    assert mask is not None
    assert mask.feed(b"begin ") == b"begin "
    gate.vault.known = ((KEY, Secret(VALUE.encode())),)
    assert mask.feed(VALUE.encode()) + mask.close() == HELD.encode()
    gate.vault.damaged, gate.vault.known = True, ()
    assert begun(gate, log_that_goes_on()).mask is not None


def test_our_own_answers_are_let_be() -> None:
    flow = answered(X=VALUE)
    flows.state_of(flow).answered = True
    begun(Gate(), flow)
    assert flow.response is not None
    assert flow.response.headers["x"] == VALUE


def test_a_coding_is_undone_and_an_unknown_one_withheld() -> None:
    flow, gate = answered(content_encoding="gzip"), Gate()
    assert begun(gate, flow).mask is not None
    assert flow.response is not None
    assert "content-encoding" not in flow.response.headers
    flow = answered()
    assert flow.response is not None
    flow.response.headers["content-encoding"] = "dcb"
    state = begun(gate, flow)
    assert state.redirect is not None
    assert (state.redirect.reason, gate.refused) == ("unreadable_response", ["unreadable_response"])


def test_an_answer_that_streams_has_no_length_and_a_short_one_is_read_whole() -> None:
    for length, streams in (("100", False), (str(answer_masking.WHOLE + 1), True)):
        flow = answered()
        assert flow.response is not None
        flow.response.headers["content-length"] = length
        flow.response.stream = True
        begun(Gate(), flow)
        answer_masking.hold(flow)
        assert flow.response.stream is streams
    answer_masking.unframe(flow)
    assert "content-length" not in flow.response.headers
    assert flow.response.headers["transfer-encoding"] == "chunked"


def test_one_that_was_read_whole_gets_its_new_length() -> None:
    flow = answered(b"x", etag='"1"', digest="x")
    assert flow.response is not None
    state = begun(Gate(), flow)
    answer_masking.settle(flow)
    assert "etag" in flow.response.headers
    assert state.mask is not None
    body = state.mask.feed(VALUE.encode()) + state.mask.close()
    flow.response.data.content = body
    answer_masking.settle(flow)
    assert flow.response.headers["content-length"] == str(len(HELD))
    assert "etag" not in flow.response.headers
    assert "digest" not in flow.response.headers
