"""Ordinary traffic passes unharmed: what arrives is what was sent, byte for byte."""

from __future__ import annotations

import base64

import pytest

from tests.bypass.campaign import Range
from tests.bypass.conftest import Interlocks
from tests.bypass.passing import TRAFFIC, Traffic
from tests.support.raw_socket import parse_answers, send_raw


@pytest.mark.parametrize("traffic", TRAFFIC, ids=[traffic.id for traffic in TRAFFIC])
def test_traffic_that_is_not_mcp_arrives_as_it_was_sent(
    traffic: Traffic, shooting_range: Range, interlocks: Interlocks
) -> None:
    lenient, regular = shooting_range.servers["lenient"], interlocks.regular
    path = f"{traffic.path}?id={traffic.id}"
    lines = [
        f"{traffic.method} {lenient.url}{path} HTTP/1.1",
        f"Host: 127.0.0.1:{lenient.port}",
        f"Content-Type: {traffic.content_type}",
        *(f"{name}: {value}" for name, value in traffic.headers),
        f"Content-Length: {len(traffic.body)}",
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + traffic.body
    answers = parse_answers(send_raw("127.0.0.1", regular.port, [request]))
    assert [answer.status for answer in answers] == [200], answers
    arrived = next(each for each in lenient.requests() if each["target"] == path)
    assert arrived["method"] == traffic.method
    assert base64.b64decode(arrived["body"]) == traffic.body
    assert ["content-type", traffic.content_type] in arrived["headers"]
