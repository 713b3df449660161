"""What proposing and committing cost at the gate, beside a plain call: p50 and p99, and commits a second.

The gate, policy, masks, local log and stores are the real ones; Postgres is a real
server on this machine, with fsync on. No network and no mitmproxy are in the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench import figures
from bench.figures import Figure
from proxy.audit.local_log import LocalLog
from proxy.core.model import Answer, Context, Forward, Principal
from proxy.gate.gate import Gate
from proxy.gate.tool_catalog import ToolCatalog
from proxy.gate.two_phase import TwoPhase
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile
from proxy.redact import Masker
from proxy.store.open_store import open_store
from proxy.store.pin_files import PinFiles
from proxy.system import log_setup
from proxy.twophase.tokens import KeyRing, SigningKey
from tests.support.postgres import DURABLE, Postgres

RULES = {"version": 1, "rules": [{"id": "pay", "action": "two_phase", "tools": ["transfer_funds"]}]}
CALLS = 400
CLIENTS = 32
CONTEXT = Context(Principal("bench"), "bank.example.com")
STABLE = {"candidate_outputs": ["moved 100 to bob", "moved 100 to bob"]}
ARGUMENTS = {"amount": 100, "to": "bob"}


@contextlib.asynccontextmanager
async def open_gate(folder: Path, url: str | None) -> AsyncIterator[Gate]:
    policy = CompiledPolicy(PolicyFile.model_validate(RULES).rules, default="allow")
    log = LocalLog(folder / "events.db")
    ring = KeyRing(SigningKey("k", b"k" * 32))
    catalog = ToolCatalog(policy=lambda: policy, pins=PinFiles(folder))
    two_phase = TwoPhase(store=open_store(url, folder), ring=lambda: ring, catalog=catalog)
    gate = Gate(policy=lambda: policy, redactor=Masker(b"m" * 32), sink=log, catalog=catalog, two_phase=two_phase)
    try:
        yield gate
    finally:
        gate.close()
        await two_phase.close()
        log.close()


def message(number: int, tool: str, arguments: dict[str, object]) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


async def plain(gate: Gate, number: int) -> None:
    verdict = await gate.requests.inspect(message(number, "balance", ARGUMENTS), CONTEXT)
    assert isinstance(verdict, Forward)
    answer(gate, verdict)


def answer(gate: Gate, verdict: Forward) -> None:
    value = {"jsonrpc": "2.0", "id": verdict.message.id, "result": {"content": []}}
    gate.responses.observe(verdict.in_flight, value, b"{}")


async def propose(gate: Gate, number: int) -> dict[str, object]:
    given = {**ARGUMENTS, "_interlock": STABLE}
    verdict = await gate.requests.inspect(message(number, "transfer_funds_propose", given), CONTEXT)
    assert isinstance(verdict, Answer)
    proposed = verdict.replies[0]["result"]["structuredContent"]
    return {**ARGUMENTS, **{name: proposed[name] for name in ("proposal_id", "commit_token")}}


async def commit(gate: Gate, number: int, given: dict[str, object]) -> None:
    verdict = await gate.requests.inspect(message(number, "transfer_funds_commit", given), CONTEXT)
    assert isinstance(verdict, Forward), verdict
    answer(gate, verdict)


class Times:
    """Milliseconds that calls took."""

    def __init__(self) -> None:
        self._taken: list[float] = []

    async def of[T](self, work: object) -> T:
        started = time.perf_counter()
        done: T = await work  # type: ignore[misc]
        self._taken.append((time.perf_counter() - started) * 1000)
        return done

    def figures(self, name: str) -> list[Figure]:
        cuts = statistics.quantiles(self._taken, n=100)
        return [Figure(f"{name}, p50", cuts[49], "ms"), Figure(f"{name}, p99", cuts[98], "ms")]


async def one_store(name: str, folder: Path, url: str | None, count: int) -> list[Figure]:
    async with open_gate(folder, url) as gate:
        calls, proposals, commits = Times(), Times(), Times()
        for number in range(count):
            await calls.of(plain(gate, number))
            given = await proposals.of(propose(gate, number))
            await commits.of(commit(gate, number, given))
        return [
            *calls.figures(f"{name}: plain call"),
            *proposals.figures(f"{name}: propose"),
            *commits.figures(f"{name}: commit"),
            await at_once(name, gate, count),
        ]


async def at_once(name: str, gate: Gate, count: int) -> Figure:
    tickets = [await propose(gate, number) for number in range(count)]
    waiting = iter(enumerate(tickets))

    async def client() -> None:
        for number, given in waiting:
            await commit(gate, number, given)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return Figure(f"{name}: commits, {CLIENTS} clients", count / (time.perf_counter() - started), "a second")


def measure(quick: bool) -> Iterator[Figure]:  # noqa: FBT001
    log_setup.silence()
    count = CALLS // 4 if quick else CALLS
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(one_store("sqlite", Path(folder) / "sqlite", None, count))
        postgres = Postgres(DURABLE)
        try:
            yield from asyncio.run(one_store("postgres", Path(folder) / "postgres", postgres.new_database(), count))
        finally:
            postgres.stop()


if __name__ == "__main__":
    figures.main(measure, __doc__)
