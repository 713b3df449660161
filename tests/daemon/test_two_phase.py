"""Commits across crashes and replicas: whatever dies, a token moves money at most once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.store.open_store import open_store
from tests.acceptance.bank import POLICY, STABLE
from tests.daemon.dying import POINTS
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.postgres import Postgres
from tests.support.timeouts import PATIENCE

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOB = {"amount": 100, "to": "bob"}
SECRET = "INTERLOCK_COMMIT_SECRET"
SHARED = {SECRET: "0123456789abcdef" * 4}


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[ServerHandle]:
    with start_python_server("funds", tmp_path / "bank", flags=["--json"]) as server:
        yield server


def body(tool: str, arguments: Any, number: int) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


async def call(http: httpx2.AsyncClient, url: str, tool: str, arguments: Any, number: int = 1) -> Any:
    answer = await http.post(f"{url}/mcp", content=body(tool, arguments, number), headers={**HEADERS, "mcp-name": tool})
    return answer.json()["result"]


async def propose(http: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    answer = await call(http, url, "transfer_funds_propose", {**BOB, "_interlock": STABLE})
    structure: dict[str, Any] = answer["structuredContent"]
    assert structure["status"] == "allowed"
    return {**BOB, **{name: structure[name] for name in ("proposal_id", "commit_token")}}


def reason(result: Any) -> str | None:
    told = result.get("_meta", {}).get("mcp-interlock/denial")
    return told["reason"] if told else None


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=PATIENCE, trust_env=False)


def moved(bank: ServerHandle) -> list[Any]:
    return [entry["arguments"] for entry in bank.executions() if entry["tool"] == "transfer_funds"]


async def commit_and_die(folder: Path, bank: ServerHandle, point: str) -> dict[str, Any]:
    """Propose and commit with a proxy that dies at `point`; return what was committed with."""
    mode = f"reverse:{bank.url}"
    dead: list[int] = []
    given: dict[str, Any] = {}
    try:
        with start_interlock(folder, mode, POLICY, program=["tests.daemon.dying", point]) as interlock:
            async with client() as http:
                given = await propose(http, interlock.url)
                with pytest.raises(httpx2.HTTPError):
                    await call(http, interlock.url, "transfer_funds_commit", given)
            dead.append(interlock.process.wait(PATIENCE))
            interlock.stopped = True
    except AssertionError:
        assert dead, "the proxy lived on"
    assert dead == [-9]
    return given


@pytest.mark.parametrize(
    ("point", "after", "executions"),
    [
        ("before the nonce", None, 1),
        ("after the nonce", "nonce_replay", 0),
        ("after the record", "nonce_replay", 0),
        ("after forwarding", "nonce_replay", 1),
    ],
)
async def test_a_proxy_killed_at_any_point_never_lets_a_token_work_twice(
    tmp_path: Path, bank: ServerHandle, point: str, after: str | None, executions: int
) -> None:
    assert point in POINTS
    given = await commit_and_die(tmp_path, bank, point)
    with start_interlock(tmp_path, f"reverse:{bank.url}", POLICY) as interlock:
        async with client() as http:
            assert reason(await call(http, interlock.url, "transfer_funds_commit", given)) == after
            assert reason(await call(http, interlock.url, "transfer_funds_commit", given)) == "nonce_replay"
        assert len(moved(bank)) == executions
        story = await told(interlock, given["proposal_id"])
    assert story == STORIES[point]


# What the store and the log say of the first, killed attempt.
STORIES = {
    "before the nonce": ("committed", "done", True),
    "after the nonce": ("committed", None, False),
    "after the record": ("committed", None, True),
    "after forwarding": ("committed", None, True),
}


async def told(interlock: Interlock, proposal_id: str) -> tuple[str, str | None, bool]:
    """Return a proposal's state, its commit's outcome, and whether the call was recorded as let through."""
    store = open_store(None, interlock.state_dir)
    try:
        proposal = await store.proposal(proposal_id)
        assert proposal is not None
        commit = await store.commit(proposal.nonce)
        assert commit is not None
    finally:
        await store.close()
    recorded = [
        event
        for event in interlock.events()
        if event["kind"] == "decided" and event["decision"] == "allow" and event["call_id"] == commit.attempt_id
    ]
    return str(proposal.state), commit.outcome, bool(recorded)


async def test_of_64_who_commit_at_once_through_two_proxies_on_postgres_one_does(
    tmp_path: Path, bank: ServerHandle, postgres: Postgres
) -> None:
    mode, flags = f"reverse:{bank.url}", ["--database-url", postgres.new_database()]
    with (
        start_interlock(tmp_path / "a", mode, POLICY, env=SHARED, flags=flags) as first,
        start_interlock(tmp_path / "b", mode, POLICY, env=SHARED, flags=flags) as second,
    ):
        urls = [first.url, second.url]
        async with client() as http:
            given = await propose(http, first.url)
            results = await asyncio.gather(
                *(call(http, urls[n % 2], "transfer_funds_commit", given, n) for n in range(64))
            )
    assert [reason(result) for result in results].count(None) == 1
    assert [reason(result) for result in results].count("nonce_replay") == 63
    assert moved(bank) == [BOB]


async def test_postgres_that_is_away_refuses_commits_and_takes_them_again_when_it_is_back(
    tmp_path: Path, bank: ServerHandle, postgres: Postgres
) -> None:
    flags = ["--database-url", postgres.new_database()]
    with start_interlock(tmp_path, f"reverse:{bank.url}", POLICY, flags=flags) as interlock:
        async with client() as http:
            given = await propose(http, interlock.url)
            postgres.halt()
            refused = await call(http, interlock.url, "transfer_funds_commit", given)
            assert reason(refused) == "store_unavailable"
            proposing = await call(http, interlock.url, "transfer_funds_propose", {**BOB, "_interlock": STABLE})
            assert reason(proposing) == "store_unavailable"
            assert reason(await call(http, interlock.url, "balance", {"account": "bob"})) is None
            postgres.start()
            assert reason(await call(http, interlock.url, "transfer_funds_commit", given)) is None
    assert moved(bank) == [BOB]


async def test_a_server_that_dies_leaves_the_commit_unknown(tmp_path: Path, bank: ServerHandle) -> None:
    with start_interlock(tmp_path, f"reverse:{bank.url}", POLICY) as interlock:
        async with client() as http:
            answer = await call(http, interlock.url, "dying_transfer_propose", {"amount": 5, "_interlock": STABLE})
            given = {"amount": 5, **{n: answer["structuredContent"][n] for n in ("proposal_id", "commit_token")}}
            await http.post(
                f"{interlock.url}/mcp",
                content=body("dying_transfer_commit", given, 2),
                headers={**HEADERS, "mcp-name": "dying_transfer_commit"},
            )
            again = await call(http, interlock.url, "dying_transfer_commit", given, 3)
            assert reason(again) == "nonce_replay"
        assert await told(interlock, given["proposal_id"]) == ("committed", "unknown", True)
