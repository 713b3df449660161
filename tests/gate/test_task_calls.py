"""Calls that wait for people as tasks of the proxy's own, through the gate and with real stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.core.approvals import Operator
from proxy.core.model import Answer, Context, Forward, Held, Verdict
from proxy.core.proposals import State
from proxy.errors import StoreUnavailableError
from proxy.gate.hold import HoldTimes
from proxy.gate.task_calls import offer_task, offer_tasks
from proxy.twophase.review import ProposalReview
from tests.gate.test_hold import Caller
from tests.support.timeouts import PATIENCE
from tests.support.two_phase_fixture import ARGUMENTS, CONTEXT, PAY, World, other, replace_agent, reply

TASK = {**PAY, "approval": {"how": "task"}}
ALICE = Operator("alice")
RELATED = "io.modelcontextprotocol/related-task"


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    url = request.getfixturevalue("database_url") if request.param == "postgres" else None
    world = World(tmp_path, [TASK], database_url=url, console_url="https://console.example.com")
    world.two_phase.held._times = HoldTimes(PATIENCE, PATIENCE)
    yield world
    await world.close()


async def settle(verdict: Verdict) -> Verdict:
    if not isinstance(verdict, Held):
        return verdict
    async with asyncio.timeout(PATIENCE):
        return await verdict.wait(Caller())


async def create(world: World, **more: Any) -> Any:
    """Make a call as a task; return the task."""
    answer = await settle(await world.inspect("transfer_funds", ARGUMENTS, task={"ttl": 60_000}, **more))
    return reply(answer)["result"]["task"]


async def ask(world: World, method: str, task_id: Any, context: Context = CONTEXT, headers: Any = ()) -> Verdict:
    world.next_id += 1
    body = {"jsonrpc": "2.0", "id": world.next_id, "method": method, "params": {"taskId": task_id}}
    return await world.gate.requests.inspect(json.dumps(body).encode(), context, headers)


async def status(world: World, task: Any) -> str:
    got = reply(await ask(world, "tasks/get", task["taskId"]))["result"]
    assert got["taskId"] == task["taskId"]
    told: str = got["status"]
    return told


async def decide(world: World, *, approve: bool = True) -> str:
    (found,) = await world.store.proposals([State.PENDING])
    review = ProposalReview(world.store, world, lambda: world.now)
    await (review.approve if approve else review.reject)(found.proposal_id, ALICE, "because")
    return found.proposal_id


def refusal(verdict: Verdict) -> str:
    code: str = reply(verdict)["error"]["data"]["reason"]
    return code


async def test_a_task_is_there_at_once_and_its_result_is_the_call_made_once(world: World) -> None:
    task = await create(world)
    assert (task["status"], task["pollInterval"], task["ttl"]) == ("working", 1000, 3_600_000)
    assert "waiting for an operator" in task["statusMessage"]
    assert await status(world, task) == "working"
    await decide(world)
    assert await status(world, task) == "input_required"
    forward = await settle(await ask(world, "tasks/result", task["taskId"]))
    assert isinstance(forward, Forward)
    # The server gets the plain call, under the id of the request that asks for its result.
    assert forward.message.value["params"] == {"name": "transfer_funds", "arguments": ARGUMENTS}
    assert (forward.message.method, forward.message.id) == ("tools/call", world.next_id)
    assert await status(world, task) == "working"
    value = {"jsonrpc": "2.0", "id": forward.message.id, "result": {"content": [], "_meta": {"x": 1}}}
    given = world.gate.responses.observe(forward.in_flight, value, json.dumps(value).encode())
    assert given["result"]["_meta"] == {"x": 1, RELATED: {"taskId": task["taskId"]}}
    await world.two_phase.settle()
    assert await status(world, task) == "completed"
    assert refusal(await settle(await ask(world, "tasks/result", task["taskId"]))) == "nonce_replay"


async def test_asking_for_the_result_waits_for_people(world: World) -> None:
    task = await create(world)
    verdict = await ask(world, "tasks/result", task["taskId"])
    assert isinstance(verdict, Held)
    waiting = asyncio.create_task(verdict.wait(Caller()))  # type: ignore[arg-type]
    await decide(world)
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await waiting, Forward)


async def test_64_that_ask_for_one_result_make_one_call(world: World) -> None:
    task = await create(world)
    await decide(world)
    verdicts = await asyncio.gather(*(ask(world, "tasks/result", task["taskId"]) for _ in range(64)))
    settled = await asyncio.gather(*map(settle, verdicts))
    assert sum(isinstance(one, Forward) for one in settled) == 1
    assert {refusal(one) for one in settled if isinstance(one, Answer)} == {"nonce_replay"}


async def test_a_rejection_and_a_proposal_that_expired_fail_the_task(world: World) -> None:
    task = await create(world)
    await decide(world, approve=False)
    got = reply(await ask(world, "tasks/get", task["taskId"]))["result"]
    assert (got["status"], got["statusMessage"]) == ("failed", "alice rejected it: because")
    assert refusal(await settle(await ask(world, "tasks/result", task["taskId"]))) == "approval_rejected"
    world.now += 7200
    late = await create(world)
    world.now += 3601
    assert await status(world, late) == "failed"
    assert refusal(await settle(await ask(world, "tasks/result", late["taskId"]))) == "approval_pending"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_a_task_is_its_agents_and_its_sessions_alone(world: World, method: str) -> None:
    task = await create(world)
    await decide(world)
    own = task["taskId"]
    for context in (replace_agent(CONTEXT, "mallory"), other(session="s2"), other(server="evil.example.com")):
        assert refusal(await settle(await ask(world, method, own, context))) == "unknown_proposal"
    for changed in (own[:-2] + ("AA" if own[-2:] != "AA" else "BB"), "ilt1.k1.AAAA"):
        assert refusal(await settle(await ask(world, method, changed))) == "bad_signature"


async def test_a_poll_that_is_dressed_as_another_call_makes_none(world: World) -> None:
    task = await create(world)
    await decide(world)
    for name, value in (("mcp-method", "tasks/result"), ("Mcp-Name", task["taskId"]), ("mcp-param-x", "1")):
        verdict = await ask(world, "tasks/result", task["taskId"], headers=[(name, value)])
        assert reply(await settle(verdict))["error"]["code"] in (-32001, -32020), name
    assert await status(world, task) == "input_required"


async def test_it_cannot_be_cancelled_and_makes_no_call_unless_asked(world: World) -> None:
    task = await create(world)
    answer = reply(await ask(world, "tasks/cancel", task["taskId"]))
    assert answer["error"]["code"] == -32601
    await decide(world)
    assert await status(world, task) == "input_required"


async def test_the_policy_in_force_counts_when_the_call_is_made(world: World) -> None:
    task = await create(world)
    await decide(world)
    world.set_rules([{"id": "no", "action": "deny", "tools": ["transfer_funds"]}])
    assert refusal(await settle(await ask(world, "tasks/result", task["taskId"]))) == "policy_denied"
    # Where nothing has to be approved any more, it is made once all the same.
    world.set_rules([])
    assert isinstance(await settle(await ask(world, "tasks/result", task["taskId"])), Forward)
    assert refusal(await settle(await ask(world, "tasks/result", task["taskId"]))) == "nonce_replay"


async def test_without_the_store_nothing_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await create(world)
    await decide(world)

    async def fail(*_: object) -> None:
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(world.store, "proposal", fail)
    for method in ("tasks/get", "tasks/result"):
        assert refusal(await settle(await ask(world, method, task["taskId"]))) == "store_unavailable"


async def test_who_asks_for_no_task_is_held_and_a_servers_own_task_is_the_servers(world: World) -> None:
    held = await world.inspect("transfer_funds", ARGUMENTS)
    assert isinstance(held, Held)
    caller = Caller()
    caller.is_gone = True
    assert reply(await held.wait(caller))["result"]["isError"]
    assert isinstance(await ask(world, "tasks/get", "7f3a"), Forward)
    world.set_rules([{**PAY, "approval": {"how": "hold"}}])
    held = await world.inspect("transfer_funds", ARGUMENTS, task={})
    assert isinstance(held, Held)
    waiting = asyncio.create_task(held.wait(Caller()))  # type: ignore[arg-type]
    await decide(world)
    async with asyncio.timeout(PATIENCE):
        forward = await waiting
    assert isinstance(forward, Forward)
    assert forward.message.params["task"] == {}


def test_lists_and_handshakes_say_that_there_are_tasks() -> None:
    assert offer_task({"name": "x", "execution": {"y": 1}})["execution"] == {"y": 1, "taskSupport": "optional"}
    for said in ("optional", "required"):
        tool = {"name": "x", "execution": {"taskSupport": said}}
        assert offer_task(tool) is tool
    assert offer_task({"execution": "odd"})["execution"] == {"taskSupport": "optional"}
    handshake = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": {"list": {}, "requests": 7}}}
    tasks = offer_tasks(handshake)["capabilities"]["tasks"]
    assert tasks == {"list": {}, "requests": {"tools": {"call": {}}}}
    for unchanged in ({**handshake, "protocolVersion": "2025-06-18"}, {**handshake, "capabilities": None}, {}):
        assert offer_tasks(unchanged) is unchanged


async def test_a_list_offers_a_task_only_of_the_tools_that_a_rule_names(world: World) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("transfer_funds", "balance")]
    shown, _ = world.two_phase._catalog.show(replace(CONTEXT), {"tools": tools}, continued=False)
    assert [tool.get("execution") for tool in shown["tools"]] == [{"taskSupport": "optional"}, None]
