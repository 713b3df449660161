"""The table of calls that replicas share on Postgres. Every method is one round trip.

A row from the database counts only with a seal: whoever can write there must not choose by which rules an answer is
masked. Replicas with other keys see nothing of each other's calls.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.gate.in_flight_json import from_json, to_json
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.core.model import Context, InFlightCall, MessageId
    from proxy.store.database import Database

log = structlog.get_logger("interlock.in_flight")

SQL: Final = Queries("replica_calls")
ALIVE_SECONDS: Final = 10.0  # a process that was not seen for so long holds no id any more
OPEN_SECONDS: Final = 3600.0
ENDED_SECONDS: Final = 600.0  # a client may have an answer replayed
FACT_SECONDS: Final = 7 * 86_400.0
MAX_CALLS: Final = 200_000
MAX_FACTS: Final = 5_000
MAX_OF_OWNER: Final = 500
OVERLAP: Final = 200  # of facts read again: a number that was given earlier may be committed later


class ReplicaBoard:
    """What one process reads and writes there."""

    def __init__(self, database: Database, owner: str, replica: str, key: bytes) -> None:
        self._database = database
        self._owner = owner
        self._replica = replica
        self._key = key
        self._read = 0  # the newest fact

    async def beat(self) -> int:
        """Say that this process is alive; return how many of other replicas are."""
        rows = await self._database.execute(SQL["beat"], self._owner, self._replica, ALIVE_SECONDS)
        return int(rows[0][0])

    async def leave(self) -> None:
        await self._database.execute(SQL["leave"], self._owner)

    async def claim(self, context: Context, message_id: MessageId) -> bool:
        """Claim an id of a session; return whether no other process has it."""
        key = claim_key(context, message_id)
        place = context.server, context.session, json.dumps(message_id)
        return bool(await self._database.execute(SQL["claim"], key, self._owner, *place, ALIVE_SECONDS))

    async def release(self, keys: Iterable[bytes]) -> None:
        await self._database.execute(SQL["release"], list(keys), self._owner)

    async def post(self, in_flight: InFlightCall, *, is_open: bool = True) -> None:
        context, body = in_flight.context, to_json(in_flight)
        place = context.server, context.session or "", json.dumps(in_flight.message.id)
        seal = self._seal(in_flight.call_id, *place, body)
        await self._database.execute(SQL["post"], in_flight.call_id, *place, is_open, body, seal)

    async def find(self, context: Context, message_id: MessageId) -> InFlightCall | None:
        place = context.server, context.session, json.dumps(message_id)
        found = self._open(await self._database.fetch(SQL["find"], *place))
        return found[0] if found else None

    async def of_session(self, context: Context) -> list[InFlightCall]:
        return self._open(await self._database.fetch(SQL["open_calls"], context.server, context.session))

    async def end(self, call_id: str) -> bool:
        return bool(await self._database.execute(SQL["end"], call_id))

    async def ended(self, call_ids: Iterable[str]) -> set[str]:
        return {row[0] for row in await self._database.fetch(SQL["ended"], list(call_ids))}

    async def learn(self, kind: str, name: str, path: str, owner: str) -> str | None:
        """Store a fact; return who was the first to know it, None where there is no room for it."""
        limits = MAX_FACTS, MAX_FACTS if kind == "legacy" else MAX_OF_OWNER
        rows = await self._database.execute(SQL["learn"], kind, name, path, owner, *limits)
        return str(rows[0][0]) if rows else None

    async def is_known(self, kind: str, name: str, path: str) -> bool:
        return bool(await self._database.fetch(SQL["is_known"], kind, name, path))

    async def new_facts(self) -> list[tuple[str, str, str, str]]:
        """Return what was learnt since this was last asked: kind, name, path and owner."""
        rows = await self._database.fetch(SQL["facts_since"], max(0, self._read - OVERLAP))
        if rows:
            self._read = max(self._read, rows[-1][0])
        return [(kind, name, path, owner) for _, kind, name, path, owner in rows]

    async def sweep(self) -> None:
        await self._database.execute(SQL["delete_old_calls"], OPEN_SECONDS, ENDED_SECONDS, MAX_CALLS)
        await self._database.execute(SQL["delete_dead"], OPEN_SECONDS, FACT_SECONDS)

    async def close(self) -> None:
        await self._database.close()

    def _seal(self, *parts: str) -> bytes:
        return hmac.digest(self._key, json.dumps(["replica call", *parts]).encode(), "sha256")

    def _open(self, rows: Sequence[Any]) -> list[InFlightCall]:
        """Return the calls whose seal holds, with their times by this machine's clock."""
        found = []
        for call_id, server, session, number, is_open, body, seal, age in rows:
            if not hmac.compare_digest(self._seal(call_id, server, session, number, body), bytes(seal)):
                log.warning("a call of another replica is ignored: its seal is of another key", call_id=call_id)
                continue
            try:
                call = from_json(body, is_open=is_open)
            except (ValueError, KeyError, TypeError) as error:
                log.warning("a call of another replica cannot be read", call_id=call_id, error=repr(error))
                continue
            # Clocks that measure time begin anew on each machine.
            forwarded = time.perf_counter() - max(0.0, age)
            begun = forwarded - max(0.0, call.forwarded - call.started)
            found.append(replace(call, started=begun, forwarded=forwarded, shared=True))
        return found


def claim_key(context: Context, message_id: MessageId) -> bytes:
    return hashlib.blake2b(json.dumps([context.server, context.session, message_id]).encode(), digest_size=16).digest()
