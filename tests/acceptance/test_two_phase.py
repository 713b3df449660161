"""Two-phase execution with the real SDK's client and server, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult

from proxy.store.open_store import open_store
from tests.acceptance.bank import MODERN, POLICY, STABLE, Bank, denial, open_bank
from tests.support.timeouts import PATIENCE

WAYS = [("http", "legacy"), ("http", MODERN), ("sse", "legacy"), ("stdio", "legacy"), ("stdio", MODERN)]
ids = [f"{transport}-{era}" for transport, era in WAYS]
BOB = {"amount": 100, "to": "bob"}


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from contextlib import ExitStack

    stack, opened = ExitStack(), {}

    def bank(transport: str) -> Bank:
        if transport not in opened:
            opened[transport] = stack.enter_context(open_bank(tmp_path_factory.mktemp(transport), transport))
        return opened[transport]

    with stack:
        yield bank


async def propose(client: Client, tool: str, arguments: dict[str, Any], extra: Any = STABLE) -> dict[str, Any]:
    result = await client.call_tool(f"{tool}_propose", {**arguments, **({"_interlock": extra} if extra else {})})
    assert not result.is_error, result.content[0]
    assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def ticket(proposed: dict[str, Any]) -> dict[str, Any]:
    return {name: proposed[name] for name in ("proposal_id", "commit_token")}


@pytest.mark.parametrize(("transport", "era"), WAYS, ids=ids)
async def test_money_moves_exactly_once(banks: Any, transport: str, era: str) -> None:
    bank: Bank = banks(transport)
    before = len(bank.entries())
    async with bank.client(era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"balance", "transfer_funds_propose", "transfer_funds_commit"} <= tools.keys()
        assert "transfer_funds" not in tools
        assert denial(await client.call_tool("transfer_funds", BOB)) == "two_phase_required"

        proposed = await propose(client, "transfer_funds", BOB)
        assert proposed["status"] == "allowed"
        assert bank.entries()[before:] == []

        changed = {**BOB, "amount": 900, **ticket(proposed)}
        assert denial(await client.call_tool("transfer_funds_commit", changed)) == "args_hash_mismatch"
        forged = {**BOB, **ticket(proposed), "commit_token": proposed["commit_token"][:-2] + "AA"}
        assert denial(await client.call_tool("transfer_funds_commit", forged)) == "bad_signature"

        committed = await client.call_tool("transfer_funds_commit", {**BOB, **ticket(proposed)})
        assert not committed.is_error
        assert committed.structured_content == {"moved": 100}
        replayed = await client.call_tool("transfer_funds_commit", {**BOB, **ticket(proposed)})
        assert denial(replayed) == "nonce_replay"

        unstable = {"candidate_outputs": ["moved 100 to bob", "refused: account 7 is closed"]}
        draft = await propose(client, "transfer_funds", BOB, unstable)
        assert draft["status"] == "blocked"
        assert draft["reason"] == "low_integrity"
        assert draft["draft"] == {"tool": "transfer_funds", "arguments": BOB}
        assert (await propose(client, "transfer_funds", BOB, None))["reason"] == "no_signals"
        await client.call_tool("balance", {"account": "bob"})
    assert bank.entries()[before:] == [("transfer_funds", BOB), ("balance", {"account": "bob"})]


@pytest.mark.parametrize(("transport", "era"), [("http", MODERN), ("stdio", MODERN)], ids=["http", "stdio"])
async def test_a_token_that_expired_moves_nothing(tmp_path: Path, transport: str, era: str) -> None:
    policy = POLICY.replace("token_seconds: 120", "token_seconds: 1")
    with open_bank(tmp_path, transport, policy) as bank:
        async with bank.client(era) as client:
            proposed = await propose(client, "transfer_funds", BOB)
            over = datetime.fromisoformat(proposed["expires_at"]) + timedelta(seconds=1)  # it is told in whole seconds
            await asyncio.sleep((over - datetime.now(UTC)).total_seconds())
            assert denial(await client.call_tool("transfer_funds_commit", {**BOB, **ticket(proposed)})) == "expired"
        assert bank.entries() == []


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_commit_that_is_asked_a_question_goes_on_with_the_answer(banks: Any, transport: str) -> None:
    bank: Bank = banks(transport)
    before = len(bank.entries())

    async def answer(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"code": "1234"})

    async with bank.client(MODERN, elicitation_callback=answer) as client:
        proposed = await propose(client, "confirmed_transfer", {"amount": 5})
        given = {"amount": 5, **ticket(proposed)}
        done = await client.call_tool("confirmed_transfer_commit", given)
        assert not done.is_error, done
        assert denial(await client.call_tool("confirmed_transfer_commit", given)) == "nonce_replay"
    assert [tool for tool, _ in bank.entries()[before:]] == ["confirmed_transfer.asked", "confirmed_transfer"]


@pytest.mark.parametrize(("transport", "era"), WAYS, ids=ids)
async def test_a_tool_that_fails_has_used_its_token(banks: Any, transport: str, era: str) -> None:
    bank: Bank = banks(transport)
    async with bank.client(era) as client:
        proposed = await propose(client, "failing_transfer", {"amount": 5})
        failed = await client.call_tool("failing_transfer_commit", {"amount": 5, **ticket(proposed)})
        assert failed.is_error
        again = await client.call_tool("failing_transfer_commit", {"amount": 5, **ticket(proposed)})
        assert denial(again) == "nonce_replay"


@pytest.mark.parametrize("transport", ["http", "sse", "stdio"])
async def test_a_server_that_dies_leaves_the_commit_unknown(tmp_path: Path, transport: str) -> None:
    with open_bank(tmp_path, transport) as bank:
        proposal_id = ""
        with contextlib.suppress(Exception):  # what becomes of the session is the client's affair
            async with bank.client("legacy") as client:
                proposed = await propose(client, "dying_transfer", {"amount": 5})
                proposal_id = proposed["proposal_id"]
                await client.call_tool("dying_transfer_commit", {"amount": 5, **ticket(proposed)})
        assert await outcome(bank, proposal_id) == "unknown"
        assert bank.entries() == [("dying_transfer", {"amount": 5})]


async def outcome(bank: Bank, proposal_id: str) -> str:
    """Return how a commit ended, once it is kept."""
    store = open_store(None, bank.state_dir)
    try:
        async with asyncio.timeout(PATIENCE):
            proposal = await store.proposal(proposal_id)
            assert proposal is not None
            while True:
                commit = await store.commit(proposal.nonce)
                if commit is not None and commit.outcome is not None:
                    return commit.outcome
                await asyncio.sleep(0.05)
    finally:
        await store.close()


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_person_approves_and_the_record_says_who(tmp_path: Path, transport: str) -> None:
    policy = POLICY + "    approval: human\n"
    with open_bank(tmp_path, transport, policy) as bank:
        async with bank.client(MODERN) as client:
            waiting = await propose(client, "transfer_funds", BOB, None)
            refused = await propose(client, "transfer_funds", {**BOB, "amount": 7}, None)
            assert waiting["status"] == refused["status"] == "pending"
            again = await propose(client, "transfer_funds", BOB, None)
            assert (again["proposal_id"], again["status"]) == (waiting["proposal_id"], "pending")
            decide(bank, "approve", waiting["proposal_id"], "the invoice was checked")
            decide(bank, "reject", refused["proposal_id"], "nobody knows why")
            again = await propose(client, "transfer_funds", {**BOB, "amount": 7}, None)
            assert (again["status"], again["reason"]) == ("rejected", "nobody knows why")
            allowed = await propose(client, "transfer_funds", BOB, None)
            assert allowed["proposal_id"] == waiting["proposal_id"]
            done = await client.call_tool("transfer_funds_commit", {**BOB, **ticket(allowed)})
            assert not done.is_error
            assert (await propose(client, "transfer_funds", BOB, None))["proposal_id"] != waiting["proposal_id"]
        assert bank.entries() == [("transfer_funds", BOB)]
        shown = bank.cli("proposals", "show", waiting["proposal_id"], "--json")
        told = json.loads(shown.stdout)
        assert (told["state"], told["operator"]) == ("committed", "operator")
        assert told["operator_reason"] == "the invoice was checked"
        assert told["commit"]["outcome"] == "done"


def decide(bank: Bank, verb: str, proposal_id: str, reason: str) -> None:
    done = bank.cli("proposals", verb, proposal_id, "--reason", reason)
    assert done.returncode == 0, done.stderr
