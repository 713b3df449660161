"""Real TypeScript clients, through Interlock, to real TypeScript servers.

A denial must reach the client at once and plainly, the session must live on, and
the server's own log must show that the denied tool never ran.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.support.harness import Certificates, ServerHandle, start_interlock
from tests.support.node_tools import (
    ClientName,
    NodeClients,
    Report,
    ServerName,
    endpoint_path,
    proxy_environment,
    start_node_server,
)

DENIAL = "mcp-interlock/denial"
DENIED_AT_ONCE_MS = 30_000  # half of what a client that hears nothing waits for

POLICY = """\
version: 1
default: allow
rules:
  - id: no-danger
    description: The tests' forbidden tool
    action: deny
    tools: [danger]
"""
POLICY_WITH_ERRORS = f"{POLICY}    respond: error\n"

type Mode = Literal["direct", "reverse", "connect"]


class Client(NamedTuple):
    name: ClientName
    legacy: bool = False

    @property
    def label(self) -> str:
        return f"{self.name}{'-legacy' if self.legacy else ''}"


class Server(NamedTuple):
    name: ServerName
    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return "".join((self.name, *(flag.removeprefix("-") for flag in self.flags)))


V1, V2, V2_LEGACY, V1_SSE = Client("v1"), Client("v2"), Client("v2", legacy=True), Client("v1-sse")

PAIRS: list[tuple[Server, list[Client]]] = [
    (Server("v1-raw"), [V1, V2]),
    (Server("v1-raw", ("--json", "--stateless")), [V1, V2]),
    (Server("v1-raw", ("--resumable",)), [V1, V2]),
    (Server("v1-express", ("--stateless",)), [V1, V2]),
    (Server("v1-express", ("--json",)), [V1, V2]),
    (Server("v2"), [V1, V2, V2_LEGACY]),
    (Server("v2", ("--json", "--stateless")), [V1, V2, V2_LEGACY]),
    (Server("v1-sse"), [V1_SSE]),
]


@dataclass(frozen=True)
class Route:
    """A server and the way a client gets to it."""

    server: ServerHandle
    url: str
    clients: NodeClients

    def run(self, client: Client) -> tuple[Report, list[str]]:
        """Run the client's script; return its report and the tools that the server executed meanwhile."""
        self.server.new_executions()
        report = self.clients.run(client.name, self.url, legacy=client.legacy)
        return report, [execution["tool"] for execution in self.server.new_executions()]


type Servers = Callable[[Server], ServerHandle]


@pytest.fixture(scope="module")
def servers(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Every server that was asked for, started once, with TLS and without."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(server: Server) -> ServerHandle:
            directory = tmp_path_factory.mktemp(server.name)
            running = start_node_server(server.name, directory, flags=server.flags, certificates=certificates)
            return stack.enter_context(running)

        yield start


@pytest.fixture(scope="module")
def plain_clients() -> Iterator[NodeClients]:
    with NodeClients() as clients:
        yield clients


@pytest.fixture(scope="module")
def proxied_clients(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeClients]:
    """Clients that an environment leads through an Interlock in regular mode, by CONNECT."""
    directory = tmp_path_factory.mktemp("forward")
    with (
        start_interlock(directory, policy=POLICY, upstream_ca=certificates.ca_file) as interlock,
        NodeClients(proxy_environment(interlock.proxy_url, interlock.ca_file)) as clients,
    ):
        yield clients


@pytest.fixture(scope="module")
def route(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Route]:
    """Lead to the parameter's server in the parameter's mode."""
    mode, server = request.param
    running, path = servers(server), endpoint_path(server.name)
    if mode == "connect":
        yield Route(running, running.url + path, request.getfixturevalue("proxied_clients"))
        return
    clients = request.getfixturevalue("plain_clients")
    if mode == "direct":
        yield Route(running, running.plain_url + path, clients)
        return
    directory = tmp_path_factory.mktemp("route")
    with start_interlock(directory, mode=f"reverse:{running.plain_url}", policy=POLICY) as interlock:
        yield Route(running, interlock.url + path, clients)


def case(mode: Mode, server: Server, client: Client) -> Any:
    return pytest.param((mode, server), client, id=f"{mode}-{server.label}-from-{client.label}")


THROUGH = [
    case(mode, server, client) for mode in ("reverse", "connect") for server, clients in PAIRS for client in clients
]
# One client each will do to show that the servers do execute the tool when nobody stops it.
CONTROLS = [case("direct", server, clients[0]) for server, clients in PAIRS]


def assert_echoed(step: Report, text: str) -> None:
    assert step["ok"], step
    assert not step["isError"], step
    assert step["text"] == text, step


def assert_session_works(report: Report) -> None:
    assert report["connect"]["ok"], report
    assert "echo" in report["list"]["tools"], report
    assert_echoed(report["echo"], "first")
    assert_echoed(report["echoAgain"], "second")
    assert report["sessionAfter"] == report["session"], report
    assert report["transportErrors"] == [], report


@pytest.mark.parametrize(("route", "client"), CONTROLS, indirect=["route"])
def test_without_the_proxy_the_same_script_executes_the_tool(route: Route, client: Client) -> None:
    report, executed = route.run(client)
    assert_session_works(report)
    assert "danger" in report["list"]["tools"]
    assert report["danger"]["text"] == "boom"
    assert executed == ["echo", "danger", "echo"]


@pytest.mark.parametrize(("route", "client"), THROUGH, indirect=["route"])
def test_a_denied_tool_is_refused_at_once_and_the_session_lives_on(route: Route, client: Client) -> None:
    report, executed = route.run(client)
    assert_session_works(report)
    assert executed == ["echo", "echo"]
    danger = report["danger"]
    assert danger["ok"], danger
    assert danger["isError"], danger
    denial = danger["meta"][DENIAL]
    assert denial["rule"] == "no-danger"
    assert denial["retryable"] is False
    assert denial["audit_id"]
    assert denial["reason"] in danger["text"]
    assert danger["ms"] < DENIED_AT_ONCE_MS


@pytest.mark.parametrize(
    ("server", "client"),
    [(Server("v1-raw"), V1), (Server("v2"), V2), (Server("v2"), V2_LEGACY), (Server("v1-sse"), V1_SSE)],
    ids=["v1", "v2", "v2-legacy", "v1-sse"],
)
def test_a_rule_that_responds_with_an_error_surfaces_as_one(
    server: Server, client: Client, servers: Servers, plain_clients: NodeClients, tmp_path: Path
) -> None:
    running = servers(server)
    mode = f"reverse:{running.plain_url}"
    with start_interlock(tmp_path, mode=mode, policy=POLICY_WITH_ERRORS) as interlock:
        report, executed = Route(running, interlock.url + endpoint_path(server.name), plain_clients).run(client)
    assert_session_works(report)
    assert executed == ["echo", "echo"]
    error = report["danger"]["error"]
    assert error["code"] == 40301
    assert error["data"]["rule"] == "no-danger"
    assert error["data"]["reason"] in error["message"]
    assert report["danger"]["ms"] < DENIED_AT_ONCE_MS
