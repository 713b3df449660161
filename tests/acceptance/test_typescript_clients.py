"""Real TypeScript clients, through Interlock, to real TypeScript servers.

A denial must reach the client at once and plainly, the session must live on, and
the server's own log must show that the denied tool never ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.harness import Certificates, Interlock, ServerHandle, start_interlock
from tests.node_tools import (
    ClientName,
    Report,
    ServerName,
    endpoint_path,
    proxy_environment,
    run_client,
    start_node_server,
)

DENIAL = "mcp-interlock/denial"
DENIED_AT_ONCE_MS = 2000

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
    flags: tuple[str, ...] = ()


class Server(NamedTuple):
    name: ServerName
    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return "".join((self.name, *(flag.removeprefix("-") for flag in self.flags)))


V1, V2, V2_LEGACY, V1_SSE = Client("v1"), Client("v2"), Client("v2", ("--legacy",)), Client("v1-sse")

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
    env: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, client: Client) -> tuple[Report, list[str]]:
        """Run the client's script; give its report and the tools that the server executed meanwhile."""
        self.server.new_executions()
        report = run_client(client.name, self.url, flags=client.flags, env=self.env)
        return report, [execution["tool"] for execution in self.server.new_executions()]


@pytest.fixture(scope="module")
def forward_proxy(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    """One Interlock in regular mode, which every CONNECT test shares."""
    directory = tmp_path_factory.mktemp("forward")
    with start_interlock(directory, policy=POLICY, upstream_ca=certificates.ca_file) as interlock:
        yield interlock


@pytest.fixture(scope="module")
def route(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Route]:
    """Run the parameter's server, and lead to it in the parameter's mode."""
    mode, server = request.param
    directory = tmp_path_factory.mktemp("route")
    path, tls = endpoint_path(server.name), certificates if mode == "connect" else None
    with start_node_server(server.name, directory, flags=server.flags, certificates=tls) as running:
        if mode == "connect":
            proxy: Interlock = request.getfixturevalue("forward_proxy")
            env = proxy_environment(proxy.proxy_url, proxy.ca_file)
            yield Route(running, running.url + path, env)
        elif mode == "reverse":
            with start_interlock(directory, mode=f"reverse:{running.url}", policy=POLICY) as interlock:
                yield Route(running, interlock.url + path)
        else:
            yield Route(running, running.url + path)


def case(mode: Mode, server: Server, client: Client) -> Any:
    return pytest.param((mode, server), client, id=f"{mode}-{server.label}-from-{client.name}{''.join(client.flags)}")


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
def test_a_rule_that_responds_with_an_error_surfaces_as_one(server: Server, client: Client, tmp_path: Path) -> None:
    with (
        start_node_server(server.name, tmp_path, flags=server.flags) as running,
        start_interlock(tmp_path, mode=f"reverse:{running.url}", policy=POLICY_WITH_ERRORS) as interlock,
    ):
        report, executed = Route(running, interlock.url + endpoint_path(server.name)).run(client)
    assert_session_works(report)
    assert executed == ["echo", "echo"]
    error = report["danger"]["error"]
    assert error["code"] == 40301
    assert error["data"]["rule"] == "no-danger"
    assert error["data"]["reason"] in error["message"]
    assert report["danger"]["ms"] < DENIED_AT_ONCE_MS
