"""Legacy endpoints are learnt from the servers that name them."""

from __future__ import annotations

from addons.legacy_endpoints import LegacyEndpoints
from tests.addons.test_mcp import make_flow
from tests.support.gate_fixture import call


def test_a_legacy_endpoint_is_one_once_its_server_named_it() -> None:
    endpoints, flow = LegacyEndpoints(None), make_flow(call())
    assert not endpoints.takes(flow)
    endpoints.add("mcp.example.com", "/mcp?x=1")
    assert endpoints.takes(flow)
    assert not endpoints.takes(make_flow(call(), Accept="application/json, text/event-stream"))
    assert not endpoints.takes(make_flow(call(), Mcp_Session_Id="s"))
