"""The store of the policy roll-out, on any database. Each method is one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.core.rollout import ReplicaState, SideCounts, SignedStep
from proxy.store.packed_text import pack, unpack
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.rollout import Side
    from proxy.store.database import Database, Transaction

SQL = Queries("rollout")
POSTGRES_SQL = Queries("clock_postgres")
SQLITE_SQL = Queries("clock_sqlite")
CHANNEL: Final = "interlock_policy"  # Postgres tells of steps and returns there (sql/postgres/0013_policy_versions.sql)
SLOT_SECONDS: Final = 10.0
FORGOTTEN_SECONDS: Final = 86_400.0  # a replica that said nothing for so long is no longer listed


class Rollout:
    """A `rollout.RolloutStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = POSTGRES_SQL["store_clock"] if database.remote else SQLITE_SQL["store_clock"]

    async def newest(self, above: int, limit: int) -> Sequence[SignedStep]:
        return [SignedStep(*row) for row in await self._database.fetch(SQL["newest_steps"], above, limit)]

    async def step(self, number: int) -> SignedStep | None:
        rows = await self._database.fetch(SQL["find_step"], number)
        return SignedStep(*rows[0]) if rows else None

    async def add(self, step: SignedStep, bundles: Mapping[str, str]) -> bool:
        async def work(connection: Transaction) -> bool:
            row = (step.number, step.body, step.key_id, step.signature)
            if not await connection.fetch(SQL["insert_step"], *row):
                # Ours, where the connection broke after the commit.
                there = await connection.fetch(SQL["find_step"], step.number)
                return connection.retried and tuple(there[0]) == row
            for digest, content in bundles.items():
                await connection.fetch(SQL["insert_bundle"], digest, content)
            return True

        return await self._database.transaction(work)

    async def bundle(self, digest: str) -> str | None:
        rows = await self._database.fetch(SQL["find_bundle"], digest)
        return rows[0][0] if rows else None

    async def give_up(self, number: int, replica: str, reason: str) -> bool:
        async def work(connection: Transaction) -> bool:
            now = await self._now(connection)
            return bool(await connection.fetch(SQL["insert_return"], number, pack(replica), pack(reason), now))

        return await self._database.transaction(work)

    async def returned(self, number: int) -> str | None:
        rows = await self._database.fetch(SQL["find_return"], number)
        return unpack(rows[0][0]) if rows else None

    async def returns(self, since: int) -> Mapping[int, str]:
        rows = await self._database.fetch(SQL["list_returns"], since)
        return {number: unpack(reason) for number, reason in rows}

    async def count(self, number: int, replica: str, counts: Mapping[Side, SideCounts]) -> None:
        async def work(connection: Transaction) -> None:
            slot = int(await self._now(connection) // SLOT_SECONDS)
            for side, one in counts.items():
                figures = (one.calls, one.denials, one.errors)
                await connection.fetch(SQL["add_counts"], number, slot, pack(replica), side, *figures)

        await self._database.transaction(work)

    async def counts(self, number: int, seconds: float) -> Mapping[Side, SideCounts]:
        async def work(connection: Transaction) -> Mapping[Side, SideCounts]:
            slot = int((await self._now(connection) - seconds) // SLOT_SECONDS)
            rows = await connection.fetch(SQL["sum_counts"], number, slot)
            return {side: SideCounts(*map(int, figures)) for side, *figures in rows}

        return await self._database.transaction(work, read_only=True)

    async def report(self, state: ReplicaState) -> None:
        async def work(connection: Transaction) -> None:
            now = await self._now(connection)
            problem = None if state.problem is None else pack(state.problem)
            row = (pack(state.replica), state.number, state.version, problem, now)
            await connection.fetch(SQL["report_replica"], *row)
            await connection.fetch(SQL["drop_replicas"], now - FORGOTTEN_SECONDS)
            # What an ended canary counted is of no more use. Another replica may be some steps behind.
            await connection.fetch(SQL["drop_counts"], state.number - 100)

        await self._database.transaction(work)

    async def replicas(self, seconds: float) -> Sequence[ReplicaState]:
        async def work(connection: Transaction) -> Sequence[ReplicaState]:
            rows = await connection.fetch(SQL["list_replicas"], await self._now(connection) - seconds)
            return [
                ReplicaState(unpack(name), number, version, None if problem is None else unpack(problem), at)
                for name, number, version, problem, at in rows
            ]

        return await self._database.transaction(work, read_only=True)

    async def _now(self, connection: Transaction) -> float:
        return float((await connection.fetch(self._clock))[0][0])
