"""Which requests stream: large ones to hosts that may get them, and never one that could be MCP."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from addons.limits import Limits
from addons.mcp import http_addons
from tests.addons.http_flows import KEY, make_flow, reason
from tests.support.gate_fixture import World

LIMITS = Limits(body_bytes=100, large_uploads=("mcp.example.com",))


def begin(gate: Any, **headers: str) -> Any:
    flow = make_flow({"a": 1}, **headers)
    flow.request.headers["content-length"] = "1000"
    http_addons(gate, LIMITS, KEY, mock.Mock(stopping=False), lambda _: 0).uploads.requestheaders(flow)
    return flow


def test_a_large_upload_streams() -> None:
    assert begin(World().gate).request.stream


@pytest.mark.parametrize("headers", [{"Mcp_Method": "tools/call"}, {"Mcp_Session_Id": "s"}])
def test_what_says_that_it_is_mcp_does_not(headers: dict[str, str]) -> None:
    assert not begin(World().gate, **headers).request.stream


def test_a_failure_refuses() -> None:
    world = World()
    world.gate.endpoints.takes_only_mcp = mock.Mock(side_effect=RuntimeError)  # type: ignore[method-assign]
    flow = begin(world.gate)
    assert not flow.request.stream
    assert (flow.response.status_code, reason(flow)) == (502, "internal_error")
