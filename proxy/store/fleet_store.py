"""The tables that replicas of a fleet share, on Postgres: rows in and out, sealed as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.errors import StoreUnavailableError
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxy.store.database import Database, Row, Transaction

SQL = Queries("fleet")
CHANNEL = "interlock_fleet"  # Postgres tells of changes there (sql/postgres/0011_fleet.sql)


@dataclass(frozen=True, slots=True)
class FleetRow:
    """The fleet of a database; `probe` is its sealed probe: nonce first."""

    fleet_id: str
    kek_id: str
    probe: bytes
    revision: int = 1


@dataclass(frozen=True, slots=True)
class DocumentRow:
    name: str
    generation: int
    key_id: str
    body: bytes
    seal: bytes


@dataclass(frozen=True, slots=True)
class PinsRow:
    name: str
    generation: int
    approvals: int
    listing: bool
    marks: Mapping[str, Sequence[Any]]
    body: bytes
    seal: bytes


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as it says of itself; `silent` are the seconds since, by the database's clock."""

    replica_id: str
    host: str
    version: str
    schema_version: int
    policy: str
    keys: str
    workers: int
    lag_seconds: float
    waiting_events: int
    problem: str | None
    started_at: float
    last_seen: float = 0.0
    silent: float = 0.0


class FleetStore:
    """Every method is one transaction, and raises StoreUnavailableError where it cannot be done."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fleet(self) -> FleetRow | None:
        rows = await self._database.fetch(SQL["read_fleet"])
        return FleetRow(*rows[0]) if rows else None

    async def found(self, fleet: FleetRow, documents: Sequence[DocumentRow], pins: Sequence[PinsRow]) -> str:
        """Make the fleet with all that it shares, unless there is one; return the id of the one that is there."""

        async def work(connection: Transaction) -> str:
            made = await connection.fetch(SQL["insert_fleet"], fleet.fleet_id, fleet.kek_id, fleet.probe)
            if not made:
                return str((await connection.fetch(SQL["read_fleet"]))[0][0])
            for row in documents:
                await connection.fetch(SQL["insert_document"], *_document(row))
            for pinned in pins:
                await connection.fetch(SQL["insert_pins"], *_pins(pinned))
            return fleet.fleet_id

        return await self._database.transaction(work)

    async def reseal(
        self, change: Callable[[FleetRow, Sequence[DocumentRow]], tuple[FleetRow, list[DocumentRow]]]
    ) -> None:
        """Replace the key-encryption key: every secret at once, or none."""

        async def work(connection: Transaction) -> None:
            rows = await connection.fetch(SQL["lock_fleet"])
            documents = [DocumentRow(*row) for row in await connection.fetch(SQL["list_documents"])]
            if not rows:
                raise StoreUnavailableError("there is no fleet in this database")
            fleet, changed = change(FleetRow(*rows[0]), documents)
            await connection.fetch(SQL["change_fleet_key"], fleet.kek_id, fleet.probe)
            for row in changed:
                if not await connection.fetch(SQL["update_document"], *_document(row)):
                    raise StoreUnavailableError(f"the shared {row.name} was changed at the same moment; try again")

        await self._database.transaction(work)

    async def generations(self) -> dict[str, int]:
        """Return the generation of each document, and of the pins of each server, whose names begin with `pins:`."""
        return {str(row[0]): int(row[1]) for row in await self._database.fetch(SQL["list_generations"])}

    async def documents(self) -> list[DocumentRow]:
        return [DocumentRow(*row) for row in await self._database.fetch(SQL["list_documents"])]

    async def document(self, name: str) -> DocumentRow | None:
        rows = await self._database.fetch(SQL["read_document"], name)
        return DocumentRow(*rows[0]) if rows else None

    async def replace(self, row: DocumentRow) -> bool:
        """Replace a document by its next generation; return False where somebody else has made one."""
        return bool(await self._database.execute(SQL["update_document"], *_document(row)))

    async def add(self, row: DocumentRow) -> bool:
        """Add a document; return False where somebody else has."""
        return bool(await self._database.execute(SQL["add_document"], *_document(row)))

    async def pins(self) -> list[PinsRow]:
        return [_pins_of(row) for row in await self._database.fetch(SQL["list_pins"])]

    async def server_pins(self, name: str) -> PinsRow | None:
        rows = await self._database.fetch(SQL["read_pins"], name)
        return _pins_of(rows[0]) if rows else None

    async def change_pins(self, name: str, change: Callable[[PinsRow | None], PinsRow | None]) -> PinsRow | None:
        """Replace a server's pins by what `change`, which is pure, makes of them; None leaves them. Return them.

        Nobody else's change comes between.
        """

        async def work(connection: Transaction) -> tuple[bool, PinsRow | None]:
            rows = await connection.fetch(SQL["lock_pins"], name)
            known = _pins_of(rows[0]) if rows else None
            made = change(known)
            if made is None:
                return True, known
            return bool(await connection.fetch(SQL["update_pins" if known else "insert_pins"], *_pins(made))), made

        while True:
            done, pins = await self._database.transaction(work)
            if done:
                return pins
            # Somebody else was first to see this server. Their row is there now, and is what counts. In another
            # transaction: this one has counted a change in `fleet`, which whoever has their row waits for.

    async def beat(self, replica: Replica) -> list[Replica]:
        """Say how a replica is; return all there are."""
        said = (replica.replica_id, replica.host, replica.version, replica.schema_version, replica.policy, replica.keys)
        now = (replica.workers, replica.lag_seconds, replica.waiting_events, replica.problem, replica.started_at)
        await self._database.execute(SQL["beat"], *said, *now)
        return await self.replicas()

    async def replicas(self) -> list[Replica]:
        return [Replica(*row) for row in await self._database.fetch(SQL["list_replicas"])]

    async def forget_replica(self, replica_id: str) -> bool:
        return bool(await self._database.execute(SQL["forget_replica"], replica_id))


def _document(row: DocumentRow) -> tuple[object, ...]:
    return row.name, row.generation, row.key_id, row.body, row.seal


def _pins(row: PinsRow) -> tuple[object, ...]:
    return row.name, row.generation, row.approvals, row.listing, json.dumps(row.marks), row.body, row.seal


def _pins_of(row: Row) -> PinsRow:
    name, generation, approvals, listing, marks, body, seal = row
    return PinsRow(name, generation, approvals, listing, json.loads(marks), bytes(body), bytes(seal))
