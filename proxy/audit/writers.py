"""The registry of writers in a store, and the checkpoints that are stored beside it.

The registry is a hash chain of its own, with a row for each writer and for each key that signs. Every proxy signs its
end as it grows, so a writer that was deleted from the store with all its events is missed by what another proxy signed.
"""

from __future__ import annotations

import base64
import json
import socket
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from proxy.audit.checkpoints import Checkpoint, parse
from proxy.audit.signing_keys import PublicKey
from proxy.core.event import Head, link, start
from proxy.errors import AuditUnavailableError, InterlockError
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.audit.checkpoint_signer import CheckpointSigner
    from proxy.audit.checkpoints import Signed
    from proxy.audit.event_store import Events
    from proxy.audit.ship_sources import LogSource
    from proxy.store.database import Database, Transaction

SQL = Queries("trail")
CHAIN_SQL = Queries("chain")
REGISTRY = "registry-"  # in front of the id of a registry: the name of its chain
KEY = "key-"  # in front of the id of a key: the name of its row
TRIES = 100
_LAST_NUMBER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Registered:
    """A row of the registry: a writer, or a key."""

    number: int
    name: str
    body: str
    chain: str

    def said(self, field: str) -> str | None:
        try:
            value = json.loads(self.body).get(field)
        except (ValueError, AttributeError, RecursionError):
            return None
        return value if isinstance(value, str) else None


class WriterRegistry:
    """The registry of one store. Methods raise StoreUnavailableError where the store cannot be used."""

    def __init__(self, database: Database, *, adopts: bool = False) -> None:
        """`adopts`: the first writer also registers those whose events are there already. Needs the right to read."""
        self._database = database
        self._adopts = adopts

    async def rows(self) -> list[Registered]:
        return [Registered(*row) for row in await self._database.fetch(SQL["list_registered"])]

    async def lines(self) -> list[bytes]:
        """Return the lines of every checkpoint that is stored."""
        return [row[0].encode() for row in await self._database.fetch(SQL["list_checkpoints"])]

    async def lines_of(self, writer: str, seq: int) -> list[bytes]:
        """Return the lines of the newest checkpoints of a writer, and of the newest up to number `seq`."""
        found: list[bytes] = []
        for last in (seq, _LAST_NUMBER):
            found += [row[0].encode() for row in await self._database.fetch(SQL["last_checkpoints_of"], writer, last)]
        return found

    async def add(self, checkpoints: Sequence[Checkpoint]) -> None:
        async def insert(connection: Transaction) -> None:
            await _insert_checkpoints(connection, checkpoints)

        await self._database.transaction(insert)

    async def register(self, name: str, said: Mapping[str, str], checkpoints: Sequence[Checkpoint] = ()) -> Head:
        """Register a writer or a key, once, and store checkpoints with it; return the registry's end."""

        async def insert(connection: Transaction) -> Head:
            await _insert_checkpoints(connection, checkpoints)
            for _ in range(TRIES):
                end, registry = await _end(connection)
                if await connection.fetch(SQL["find_writer"], name):
                    return end
                before = [] if end.seq or not self._adopts else await connection.fetch(CHAIN_SQL["list_writers"])
                for found in [row[0] for row in before if row[0] != name]:
                    end = await _append(connection, end, registry, found, {"found": "in the store"})
                await _append(connection, end, registry, name, said)
            raise AuditUnavailableError(f"{name} cannot be registered in the store: too many others come at once")

        return await self._database.transaction(insert)

    async def end(self) -> Head:
        """Return where the registry has come to."""
        return (await self._database.transaction(_end, read_only=True))[0]


async def _insert_checkpoints(connection: Transaction, checkpoints: Iterable[Checkpoint]) -> None:
    for one in checkpoints:
        await connection.fetch(SQL["insert_checkpoint"], one.writer, one.kind, one.seq, one.line())


async def _end(connection: Transaction) -> tuple[Head, str]:
    """Return the registry's end, and its id; of an empty one, a new id."""
    rows = await connection.fetch(SQL["last_writer"])
    registry = Registered(*rows[0]).said("registry") if rows else str(uuid.uuid4())
    name = f"{REGISTRY}{registry}"
    return (Head(name, rows[0][0], rows[0][3]) if rows else start(name)), str(registry)


async def _append(connection: Transaction, end: Head, registry: str, name: str, said: Mapping[str, str]) -> Head:
    body = json.dumps({"registry": registry, "name": name, **said})
    made = Head(end.writer, end.seq + 1, link(end.hash, end.seq + 1, body))
    # Where another process took the number, nothing is inserted: the caller looks again.
    await connection.fetch(SQL["insert_writer"], made.seq, name, body, made.hash)
    return made


def key_row(key: PublicKey) -> dict[str, str]:
    """Return what the row of a key says."""
    return {"public": base64.b64encode(key.raw()).decode()}


def registered_keys(rows: Iterable[Registered], signed: Mapping[str, Signed]) -> list[PublicKey]:
    """Return the keys of the registry that are vouched for: by what a key that is trusted already signed of it.

    Somebody who can write to the store alone could else bring a key of his own, and sign another history with it.
    """
    return list(_vouched(rows, signed))


def _vouched(rows: Iterable[Registered], signed: Mapping[str, Signed]) -> Iterable[PublicKey]:
    tip: str | None = None
    waiting: list[PublicKey] = []
    for expected, row in enumerate(rows, 1):
        name = f"{REGISTRY}{row.said('registry')}"
        tip = link(tip or start(name).hash, row.number, row.body)
        if row.number != expected or tip != row.chain:
            return  # nothing from here on is what was registered
        if row.name.startswith(KEY) and (key := _read_key(row)) is not None:
            waiting.append(key)
        links = signed[name].links if name in signed else {}
        if row.number in links:
            if links[row.number] != row.chain:
                return
            yield from waiting
            waiting.clear()


def _read_key(row: Registered) -> PublicKey | None:
    try:
        raw = base64.b64decode(row.said("public") or "", validate=True)
        key = PublicKey.of(Ed25519PublicKey.from_public_bytes(raw))
    except ValueError:
        return None
    return key if row.name == f"{KEY}{key.key_id}" else None


class RestoredError(AuditUnavailableError):
    """A log goes on from where it was long ago: its state folder was put back from a backup, or copied."""


def contradiction(
    lines: Iterable[bytes],
    keys: Sequence[PublicKey],
    head: Head,
    link_of: Callable[[int], str | None],
    *,
    ended: bool = False,
) -> str | None:
    """Return how signed lines of a writer contradict its log, whose head is `head`; None where they do not.

    A log that has `ended` may be an old copy: what it has is right, as long as it is not another history.
    """
    for one in parse(lines, "a checkpoint", keys):
        if not isinstance(one, Checkpoint) or one.writer != head.writer or one.kind != "head":
            continue
        if one.seq > head.seq and not ended:
            return f"event {one.seq} of writer {head.writer} was signed, and its log ends at event {head.seq}"
        known = head.hash if one.seq == head.seq else link_of(one.seq)  # None for what it does not have
        if known is not None and known != one.hash:
            return f"another event {one.seq} of writer {head.writer} was signed than its log has"
    return None


class Registrar:
    """Registers writers in the store before their first event is shipped, and takes checkpoints there."""

    def __init__(self, store: Events, signer: CheckpointSigner, resting: Database | None = None) -> None:
        """`resting`: the database that is asked for the registry's end, again and again."""
        self._store = store
        self._resting = resting
        self._signer = signer
        self._known: set[str] = set()
        self._end: Head | None = None

    @property
    def _registry(self) -> WriterRegistry:
        return WriterRegistry(self._store.database, adopts=self._store.proxies_read)

    async def ensure(self, source: LogSource) -> None:
        """Register the writer of a log, once. Raises RestoredError where the store has another history of it."""
        writer = source.writer
        if writer in self._known:
            return
        lines = await self._registry.lines_of(writer, source.head().seq)
        head = source.head()  # after the lines: what they say is on disk by then
        if problem := contradiction(lines, self._signer.public(), head, source.link_of, ended=source.ended):
            raise RestoredError(
                f"{source.path} is not shipped: {problem}. Its state folder was put back from a backup; "
                "start the proxy again, and it begins a new writer"
            )
        key = self._signer.key()
        await self._registry.register(f"{KEY}{key.key_id}", key_row(key))
        began = {"host": socket.gethostname(), "time": f"{time.time():.6f}"}
        await self._registry.register(writer, began, self._signer.make("head", [head]))
        self._known.add(writer)
        await self.witness()

    async def witness(self) -> None:
        """Sign the registry's end where it has grown: what this proxy saw, nobody can take back unseen."""
        end = await WriterRegistry(self._resting or self._store.database, adopts=self._store.proxies_read).end()
        if end.seq and end != self._end and self._signer.sign("head", [end]):
            self._end = end

    async def deliver(self) -> None:
        """Store the checkpoints that were signed since the last time; those that it does not take are kept."""
        if waiting := self._signer.take_unstored():
            try:
                await self._registry.add(waiting)
            except (InterlockError, OSError):
                self._signer.put_back(waiting)
                raise
