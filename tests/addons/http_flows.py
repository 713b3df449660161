"""HTTP flows, and the addons that carry them to a gate, without a proxy around them."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from mitmproxy import http
from mitmproxy.test import tflow

from addons import flow_state as flows
from addons.limits import Limits
from addons.mcp import HttpAddons, http_addons
from proxy.core.model import Principal
from tests.support.gate_fixture import ALLOW

KEY = b"k" * 32


def make_flow(value: Any, method: str = "POST", **headers: str) -> http.HTTPFlow:
    flow = tflow.tflow()
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    flow.request = http.Request.make(method, "http://mcp.example.com/mcp", json.dumps(value), fields)
    state = flows.state_of(flow)
    state.principal, state.egress = Principal("bot"), ALLOW
    return flow


def addons(gate: Any) -> HttpAddons:
    return http_addons(gate, Limits(), KEY, mock.Mock(stopping=False), lambda _: 0)


async def send(gate: Any, flow: http.HTTPFlow) -> http.HTTPFlow:
    pending = addons(gate).mcp.request(flow)
    if pending is not None:
        await pending
    return flow


def reason(flow: http.HTTPFlow) -> str:
    assert flow.response is not None
    found: str = json.loads(flow.response.content or b"")["error"]["data"]["reason"]
    return found
