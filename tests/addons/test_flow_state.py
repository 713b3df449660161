"""What is known of a flow: its one state, and the headers that the gate reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.test import tflow

from addons import flow_state as flows
from proxy.core.model import Principal
from proxy.wire.mcp import read_head

NAMES = st.sampled_from([b"Content-Type", b"content-type", b"CONTENT-ENCODING", b"Mcp-Name", b"mCP-name", b"mcp-\xff"])
FIELDS = st.lists(st.tuples(NAMES | st.binary(max_size=8), st.binary(max_size=8)), max_size=8)


@given(FIELDS)
@settings(deadline=None)
def test_headers_are_sorted_for_the_gate_as_the_gate_would(fields):
    request = http.Request.make("POST", "http://a/", headers=http.Headers(fields))
    everything = list(request.headers.items(multi=True))
    told, sorted_here = flows.head(request), read_head(everything)
    assert [list(told.content_types), list(told.encodings)] == [sorted_here.content_types, sorted_here.encodings]
    mcp = [sorted((name.lower(), value) for name, value in head.mcp) for head in (told, sorted_here)]
    assert mcp[0] == mcp[1]
    assert list(told) == everything


def test_a_flow_has_one_state_and_every_addon_sees_the_same():
    flow, other = tflow.tflow(), tflow.tflow()
    flows.state_of(flow).refused = "body_too_large"
    assert flows.state_of(flow).refused == "body_too_large"
    assert flows.state_of(other).refused is None


def test_a_flow_that_nobody_judged_may_not_leave():
    assert not flows.may_leave(tflow.tflow())


def test_a_flow_whose_caller_is_not_known_has_no_context():
    with pytest.raises(LookupError, match="not known"):
        flows.context(tflow.tflow())


def test_an_answer_of_our_own_is_marked_as_one():
    flow = tflow.tflow()
    flows.answer(flow, 403, b"no")
    assert flows.state_of(flow).answered


@pytest.mark.parametrize(
    ("url", "way"),
    [
        ("https://api.example.com/", "sealed"),
        ("https://10.0.0.1/", "sealed"),
        ("http://127.0.0.1/", "sealed"),
        ("http://127.9.9.9/", "sealed"),
        ("http://[::1]/", "sealed"),
        ("http://LOCALHOST./", "sealed"),
        ("http://api.example.com/", "plain"),
        ("http://10.0.0.1/", "plain"),
        ("http://0.0.0.0/", "sealed"),
    ],
)
def test_who_can_read_what_is_sent(url: str, way: str):
    flow = tflow.tflow()
    flow.request = http.Request.make("GET", url)
    flows.state_of(flow).principal = Principal("bot")
    assert flows.context(flow).way == way


@pytest.mark.parametrize("path", ["https://other.example/x", "other.example/x", ""])
def test_a_target_that_is_no_path_may_name_another_host(path: str):
    flow = tflow.tflow()
    flow.request, flow.client_conn.sni = http.Request.make("GET", "https://api.example.com/"), None
    assert flows.misdirected(flow) is None
    flow.request.data.path = path.encode()
    assert "is not a path" in str(flows.misdirected(flow))
