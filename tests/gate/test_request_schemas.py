"""What a mask would break by the tool's own schema is refused: arguments on their way, results on theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.core.model import AuditEvent, Call, Decision, Forward, PinRules
from proxy.errors import PinsUnavailableError
from proxy.gate.gate import Gate
from proxy.gate.tool_catalog import ToolCatalog
from proxy.gate.tool_pins import ServerPins
from proxy.redact import Masker
from tests.support.gate_fixture import ALLOW, CONTEXT, MASK, call, denial_of, only_reply

SECRET = "ghp_" + "Zx8Kq2" * 6
MASKER = Masker(b"k" * 32, engine="re2")
TOKEN = {"type": "object", "properties": {"token": {"type": "string", "pattern": "^ghp_"}, "note": {"type": "string"}}}
TOOL = {"name": "t", "inputSchema": TOKEN, "outputSchema": TOKEN}


@dataclass
class World:
    """A gate with the real masker, over pins in memory."""

    known: ServerPins | None = None
    incoming: Any = ()
    pins: PinRules = field(default_factory=lambda: PinRules("off", "record"))
    events: list[AuditEvent] = field(default_factory=list)
    broken: bool = False
    version: str = "v1"

    def __post_init__(self) -> None:
        self.catalog = ToolCatalog(policy=lambda: self, pins=self)
        self.gate = Gate(policy=lambda: self, redactor=MASKER, sink=self, catalog=self.catalog)

    def read(self, _server: str) -> ServerPins | None:
        if self.broken:
            raise PinsUnavailableError("gone")
        return self.known

    def update(self, _server: str, change: Callable[[ServerPins | None], ServerPins | None]) -> ServerPins | None:
        self.known = change(self.known)
        return self.known

    def servers(self) -> list[str]:
        return []

    def decide(self, _call: Call) -> Decision:
        return replace(ALLOW, redactions=(MASK,))

    def could_allow(self, _call: Call) -> bool:
        return True

    def governs(self, _call: Call) -> Any:
        return "never"

    def offers_task(self, _call: Call) -> bool:
        return False

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)

    def offer(self, tool: dict[str, Any]) -> None:
        self.catalog.show(CONTEXT, {"tools": [tool]}, continued=False)

    async def send(self, arguments: Any) -> Any:
        return await self.gate.requests.inspect(json.dumps(call(arguments=arguments)).encode(), CONTEXT)

    async def answer(self, result: dict[str, Any]) -> Any:
        verdict = await self.send({"note": "x"})
        assert isinstance(verdict, Forward)
        value = {"jsonrpc": "2.0", "id": 7, "result": result}
        return self.gate.responses.observe(verdict.in_flight, value, json.dumps(value).encode())


@pytest.fixture
def world() -> World:
    made = World()
    made.offer(TOOL)
    return made


async def test_an_argument_that_may_not_hold_a_mask_stops_the_call(world: World) -> None:
    denial = denial_of(only_reply(await world.send({"token": SECRET})))
    assert (denial["reason"], denial["rule"]) == ("secret_found", "scrub")
    assert SECRET not in repr(world.events)


async def test_an_argument_that_may_hold_a_mask_is_masked(world: World) -> None:
    verdict = await world.send({"note": f"see {SECRET}"})
    assert isinstance(verdict, Forward)
    assert "see [secret:" in verdict.message.params["arguments"]["note"]


async def test_a_result_that_may_not_hold_a_mask_is_withheld(world: World) -> None:
    observed = await world.answer({"content": [], "structuredContent": {"token": SECRET}})
    assert denial_of(observed)["reason"] == "secret_found"
    event = world.events[-1]
    assert (event.outcome, [found.path for found in event.redactions]) == (
        "withheld",
        ["result.structuredContent.token"],
    )
    assert SECRET not in repr(world.events) + json.dumps(observed)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": {"note": SECRET}},
        {"content": [{"type": "text", "text": SECRET}], "structuredContent": {"token": "ghp_none"}},
        {"content": [], "structuredContent": {"token": SECRET}, "isError": True},
    ],
)
async def test_a_result_that_keeps_its_schema_is_masked(world: World, result: dict[str, Any]) -> None:
    observed = await world.answer(result)
    assert "[secret:" in json.dumps(observed["result"])
    assert world.events[-1].outcome in ("done", "tool_error")


@pytest.mark.parametrize("tool", [None, {"name": "other"}, {"name": "t"}])
async def test_a_tool_of_which_no_schema_is_known_is_masked_as_it_comes(tool: dict[str, Any] | None) -> None:
    world = World()
    if tool:
        world.offer(tool)
    observed = await world.answer({"content": [], "structuredContent": {"token": SECRET}})
    assert "[secret:" in json.dumps(observed["result"]["structuredContent"])
    assert isinstance(await world.send({"token": SECRET}), Forward)


async def test_a_definition_too_long_to_keep_is_not_known() -> None:
    world = World()
    world.offer({**TOOL, "description": "x" * (33 << 10)})
    assert isinstance(await world.send({"token": SECRET}), Forward)


async def test_where_the_schema_cannot_be_looked_up_nothing_is_given_on(world: World) -> None:
    verdict = await world.send({"note": "x"})
    assert isinstance(verdict, Forward)
    world.broken = True
    value = {"jsonrpc": "2.0", "id": 7, "result": {"structuredContent": {"token": SECRET}}}
    observed = world.gate.responses.observe(verdict.in_flight, value, b"")
    assert denial_of(observed)["reason"] == "internal_error"
    assert SECRET not in json.dumps(observed)
    assert denial_of(only_reply(await world.send({"token": SECRET})))["reason"] == "internal_error"
