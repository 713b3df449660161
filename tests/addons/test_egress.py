"""The addon asks for every destination, and whatever goes wrong refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mitmproxy.connection import Server
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import tflow

from addons import flow_state as flows
from addons.egress import Egress
from addons.mitm.pinned_dial import PinnedHost
from proxy.core.model import AuditEvent, Principal
from proxy.egress.guard import UNJUDGED, EgressGuard
from proxy.gate.gate import Gate
from proxy.policy.decide import CompiledPolicy
from proxy.policy.egress import CompiledEgress
from proxy.policy.rules import EgressPolicy as Section

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mitmproxy import http


async def test_a_tunnel_of_a_confined_agent_does_not_lead_back_to_this_machine() -> None:
    for said, allowed in (("none", False), ("80", True), ("8000,80", True), ("x", False), (None, True)):
        scene = Scene()
        scene.names["name.test"] = ("127.0.0.1",)
        if said is not None:
            scene.flow.request.headers["Interlock-Confined"] = said
        await scene.addon.http_connect(scene.flow)
        assert (scene.flow.response is None) is allowed, said
        if allowed:
            continue
        # Nor does a request inside of it, on the same connection.
        scene.flow.response = None
        await scene.addon.requestheaders(scene.flow)  # type: ignore[misc]
        assert not flows.may_leave(scene.flow)


class Sink:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)


class Scene:
    """An addon with a name service and a policy that the test can change."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, ...]] = {"name.test": ("192.0.2.1", "192.0.2.2")}
        self.looked_up: list[str] = []
        self.sink = Sink()
        self.rule("version one")
        gate = Gate(policy=lambda: self.policy, redactor=None, sink=self.sink)  # type: ignore[arg-type]
        self.guard = EgressGuard(lambda: self.policy, lambda: [("127.0.0.1", 8080)], self.look_up)
        self.addon = Egress(self.guard, gate)
        self.flow = tflow.tflow()
        self.flow.request.host, self.flow.request.port = "name.test", 80
        flows.state_of(self.flow).principal = Principal("bot")

    def rule(self, version: str, **section: Any) -> None:
        egress = CompiledEgress(Section.model_validate(section), version=version)
        self.policy = CompiledPolicy([], default="allow", version=version, egress=egress)

    async def look_up(self, host: str, port: int) -> tuple[str, ...]:
        self.looked_up.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]

    async def told(self, hook: Callable[[http.HTTPFlow], Awaitable[None] | None]) -> None:
        waiting = hook(self.flow)
        if waiting is not None:
            await waiting

    async def dial(self) -> Server:
        server = Server(address=(self.flow.request.host, self.flow.request.port))
        await self.addon.server_connect(ServerConnectionHookData(server=server, client=self.flow.client_conn))
        return server

    def connected(self, server: Server, address: str) -> ServerConnectionHookData:
        server.peername = (address, 80)
        data = ServerConnectionHookData(server=server, client=self.flow.client_conn)
        self.addon.server_connected(data)
        return data


@pytest.fixture
def scene() -> Scene:
    return Scene()


NO_TWO = {"rules": [{"id": "no-two", "action": "deny", "cidrs": ["192.0.2.2/32"]}]}


async def test_a_judged_request_is_dialled_at_every_judged_address_and_under_its_name(scene: Scene):
    await scene.told(scene.addon.requestheaders)
    assert flows.may_leave(scene.flow)
    server = await scene.dial()
    assert server.error is None
    assert server.address == ("name.test", 80)
    assert isinstance(server.address[0], PinnedHost)
    assert server.address[0].addresses == ("192.0.2.1", "192.0.2.2")


async def test_one_denied_address_denies_the_name(scene: Scene):
    scene.rule("two", **NO_TWO)
    await scene.told(scene.addon.requestheaders)
    assert flows.state_of(scene.flow).egress.rule == "no-two"
    assert (await scene.dial()).error is not None


async def test_a_name_that_leads_elsewhere_when_dialled_is_refused_and_recorded(scene: Scene):
    await scene.told(scene.addon.requestheaders)
    scene.names["name.test"] = ("169.254.169.254",)
    server = await scene.dial()
    assert "egress_denied" in str(server.error)
    assert not isinstance(server.address[0], PinnedHost)
    (event,) = scene.sink.events
    assert (event.kind, event.reason, event.agent, event.detail["egress"]) == (
        "connection_refused",
        "egress_denied",
        "bot",
        "egress_metadata",
    )


async def test_a_denied_name_is_not_looked_up(scene: Scene):
    scene.rule("two", rules=[{"id": "d", "action": "deny", "hosts": ["name.test"]}])
    await scene.told(scene.addon.requestheaders)
    assert not flows.may_leave(scene.flow)
    assert scene.looked_up == []


async def test_a_name_may_be_allowed_by_its_addresses(scene: Scene):
    scene.rule("two", default="deny", rules=[{"id": "a", "action": "allow", "cidrs": ["192.0.2.0/24"]}])
    await scene.told(scene.addon.requestheaders)
    assert flows.may_leave(scene.flow)


async def test_a_kept_connection_is_judged_by_the_address_it_leads_to(scene: Scene):
    await scene.told(scene.addon.requestheaders)
    server = await scene.dial()
    data = scene.connected(server, "192.0.2.2")
    scene.names["name.test"] = ("192.0.2.1",)
    scene.rule("two", **NO_TWO)
    await scene.told(scene.addon.request)
    assert flows.state_of(scene.flow).egress.rule == "no-two"
    scene.addon.server_disconnected(data)
    await scene.told(scene.addon.requestheaders)
    assert flows.may_leave(scene.flow)


async def test_an_unchanged_policy_is_asked_once_per_request(scene: Scene):
    await scene.told(scene.addon.requestheaders)
    asked = len(scene.looked_up)
    await scene.told(scene.addon.request)
    assert len(scene.looked_up) == asked


async def test_the_same_request_on_a_kept_connection_is_judged_again_where_something_changed(scene: Scene, monkeypatch):
    judged: list[Any] = []
    judge = scene.guard.judge

    async def judge_and_count(request: Any, **how: Any) -> Any:
        judged.append(request)
        return await judge(request, **how)

    async def times() -> int:
        judged.clear()
        flows.state_of(scene.flow).egress = UNJUDGED
        await scene.told(scene.addon.requestheaders)
        return len(judged)

    monkeypatch.setattr(scene.guard, "judge", judge_and_count)
    assert [await times(), await times()] == [1, 1]  # without a connection, the name may lead elsewhere each time
    data = scene.connected(await scene.dial(), "192.0.2.1")
    assert [await times(), await times()] == [1, 0]
    assert flows.may_leave(scene.flow)
    scene.flow.request.method = "DELETE"
    assert [await times(), await times()] == [1, 0]
    flows.state_of(scene.flow).principal = Principal("other")
    assert [await times(), await times()] == [1, 0]
    scene.rule("two", rules=[{"id": "no-delete", "action": "deny", "hosts": ["*"], "methods": ["DELETE"]}])
    assert [await times(), await times()] == [1, 1]  # a refusal is not kept
    assert not flows.may_leave(scene.flow)
    scene.rule("three")
    assert [await times(), await times()] == [1, 0]
    scene.addon.server_disconnected(data)
    assert [await times(), await times()] == [1, 1]


async def test_a_connection_that_nobody_asked_for_is_refused(scene: Scene):
    server = await scene.dial()
    assert "internal_error" in str(server.error)
    assert not isinstance(server.address[0], PinnedHost)


async def test_a_flow_that_was_not_judged_may_not_leave(scene: Scene):
    assert not flows.may_leave(scene.flow)
    assert flows.context(scene.flow).egress is not None


@pytest.mark.parametrize("part", ["judge", "_look_up"])
async def test_a_failing_guard_refuses(scene: Scene, part: str, monkeypatch):
    async def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("injected failure")

    await scene.told(scene.addon.requestheaders)
    monkeypatch.setattr(scene.guard, part, fail)
    assert (await scene.dial()).error is not None
    await scene.told(scene.addon.requestheaders)
    assert not flows.may_leave(scene.flow)


async def test_a_name_that_leads_nowhere_is_not_dialled(scene: Scene):
    scene.names.clear()
    await scene.told(scene.addon.requestheaders)
    server = await scene.dial()
    assert "leads to no address" in str(server.error)


async def test_a_tunnel_is_not_stopped_by_rules_on_methods_inside_it(scene: Scene):
    scene.rule("two", default="deny", rules=[{"id": "a", "action": "allow", "hosts": ["*"], "methods": ["GET"]}])
    scene.flow.request.method = "CONNECT"
    await scene.addon.http_connect(scene.flow)
    assert scene.flow.response is None
    scene.flow.request.method = "POST"
    await scene.told(scene.addon.requestheaders)
    assert not flows.may_leave(scene.flow)


async def test_a_denied_tunnel_is_answered_403(scene: Scene):
    scene.names["name.test"] = ("169.254.169.254",)
    scene.flow.request.method = "CONNECT"
    await scene.addon.http_connect(scene.flow)
    assert scene.flow.response is not None
    assert scene.flow.response.status_code == 403
