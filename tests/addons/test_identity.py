"""Who is calling: by credentials alone, checked again inside a tunnel, and never forwarded."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from mitmproxy.connection import Client, Server
from mitmproxy.http import HTTPFlow, Request

from addons.flow_state import principal
from addons.identity import Identity

TOKENS = {"robot": "right"}


class Gate:
    def __init__(self) -> None:
        self.notes: list[tuple[str, str, str]] = []
        self.recorder = self

    def record_refusal(self, kind: str, reason: str, context: Any, **_: Any) -> None:
        self.notes.append((kind, reason, context.principal.agent))


class Agents:
    def verify(self, name: str, token: str) -> bool:
        if name == "broken":
            raise OSError("the token file cannot be read")
        return TOKENS.get(name) == token


def basic(name: str, token: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()


def flow_of(*credentials: str, client: Client | None = None) -> HTTPFlow:
    made = HTTPFlow(client or Client(peername=("c", 1), sockname=("p", 2)), Server(address=("s", 3)))
    made.request = Request.make("POST", "http://s/mcp")
    for one in credentials:
        made.request.headers.add("Proxy-Authorization", one)
    made.request.headers["Proxy-Connection"] = "keep-alive"
    return made


@pytest.fixture
def gate() -> Gate:
    return Gate()


def identity(gate: Gate, *, required: bool = False) -> Identity:
    return Identity(Agents(), gate, default_agent="anybody", required=required)  # type: ignore[arg-type]


@pytest.mark.parametrize("required", [False, True])
def test_a_right_token_names_the_agent_and_goes_no_further(gate: Gate, required: bool) -> None:
    flow = flow_of(basic("robot", "right"))
    identity(gate, required=required).requestheaders(flow)
    assert (principal(flow).agent, principal(flow).authenticated) == ("robot", True)
    assert not {"proxy-authorization", "proxy-connection"} & {name.lower() for name in flow.request.headers}
    assert flow.response is None


@pytest.mark.parametrize(
    "credentials",
    [
        (basic("robot", "wrong"),),
        (basic("robot", "right"), basic("robot", "right")),
        (basic("broken", "x"),),
        ("Bearer right",),
        ("Basic ?",),
        ("Basic /w==",),
        ("",),
    ],
)
def test_any_other_credentials_are_refused(gate: Gate, credentials: tuple[str, ...]) -> None:
    flow = flow_of(*credentials)
    identity(gate).requestheaders(flow)
    assert flow.response is not None
    assert flow.response.status_code == 407
    assert flow.response.headers["proxy-authenticate"].startswith("Basic")
    assert gate.notes == [("request_refused", "agent_auth", "anybody")]
    assert not principal(flow).authenticated


def test_without_credentials_the_default_agent_calls_unless_they_are_required(gate: Gate) -> None:
    optional, required = flow_of(), flow_of()
    identity(gate).requestheaders(optional)
    identity(gate, required=True).requestheaders(required)
    assert (optional.response, principal(optional).agent) == (None, "anybody")
    assert required.response is not None


def test_a_tunnel_is_its_openers_until_the_token_is_revoked(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    addon, client = identity(gate), Client(peername=("c", 1), sockname=("p", 2))
    addon.http_connect(flow_of(basic("robot", "right"), client=client))
    inside = flow_of(basic("other", "claim"), client=client)
    addon.requestheaders(inside)
    assert (principal(inside).agent, inside.response) == ("robot", None)
    monkeypatch.setitem(TOKENS, "robot", "another")
    later = flow_of(client=client)
    addon.requestheaders(later)
    assert later.response is not None
    assert gate.notes == [("request_refused", "agent_auth", "robot")]
