"""Limits and the responses that say that one was passed."""

from __future__ import annotations

import json

import pytest
from mitmproxy.net.http import http1

from addons.limits import Limits, plain_response, refusal_body


@pytest.mark.parametrize(
    ("host", "is_large"),
    [("uploads.example.com", True), ("UPLOADS.example.com", True), ("a.cdn.test", True), ("example.com", False)],
)
def test_only_hosts_that_are_named_may_pass_the_body_limit(host: str, is_large: bool) -> None:
    limits = Limits(large_uploads=("uploads.EXAMPLE.com", "*.cdn.test"))
    assert limits.is_large_upload(host) is is_large
    assert Limits().is_large_upload(host)
    assert not Limits(large_uploads=()).is_large_upload(host)


def test_a_refusal_without_a_flow_is_one_complete_response_that_closes() -> None:
    raw = plain_response(503, "there are too many", Retry_After="1")
    head, _, body = raw.partition(b"\r\n\r\n")
    response = http1.read_response_head(head.split(b"\r\n"))
    assert (response.status_code, response.reason) == (503, "Service Unavailable")
    assert response.headers["retry-after"] == "1"
    assert response.headers["connection"] == "close"
    assert int(response.headers["content-length"]) == len(body)
    assert body == refusal_body(503, "there are too many")


def test_a_refusals_text_cannot_break_out_of_its_json() -> None:
    error = json.loads(refusal_body(400, 'a "quote"\r\n\r\nHTTP/1.1 200 OK'))["error"]
    assert error == {"status": 400, "message": 'Interlock: a "quote"\r\n\r\nHTTP/1.1 200 OK'}
