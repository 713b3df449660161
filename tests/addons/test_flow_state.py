"""What the gate is told of a request's headers."""

from hypothesis import given, settings
from hypothesis import strategies as st
from mitmproxy import http

from addons import flow_state as flows
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
