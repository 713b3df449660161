"""The quick checks say what mitmproxy's say of any head."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.http import Headers, Request, Response
from mitmproxy.net.http import validate
from mitmproxy.net.http.http1 import read

from addons.mitm.fast import header_checks

FIELDS = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(
                [b"Content-Length", b"content-length", b"Transfer-Encoding", b"X", b"", b"a:b", b":", b"a\n"]
            ),
            st.binary(max_size=3),
        ),
        st.one_of(
            st.sampled_from(
                [b"0", b"5", b"05", b"+5", b"5\n", b"5, 5", b"9" * 30, b"9" * 5000, b"chunked", b"gzip", b""]
            ),
            st.binary(max_size=3),
        ),
    ),
    max_size=4,
)


def outcome(check: Any, *messages: Any) -> object:
    try:
        return check(*messages)
    except ValueError as error:
        return str(error)


@given(
    FIELDS,
    st.sampled_from([b"GET", b"POST", b"HEAD", b"head", b"CONNECT"]),
    st.sampled_from([100, 200, 204, 304, 404]),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0"]),
)
def test_they_say_what_mitmproxys_say(fields, method, status, version):
    request, response = Request.make("GET", "http://s/"), Response.make(status)
    request.data.method, request.data.http_version, response.data.http_version = method, version, version
    request.headers, response.headers = Headers(fields), Headers(fields)
    for message in (request, response):
        ours, theirs = (outcome(each.validate_headers, message) for each in (header_checks, validate))
        assert ours == theirs
    for messages in ((request,), (request, response)):
        ours, theirs = (outcome(each.expected_http_body_size, *messages) for each in (header_checks, read))
        assert ours == theirs
