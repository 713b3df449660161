"""Reads facts about a Postgres database over one short connection; changes nothing."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass

from proxy.store.migrate import read_schema
from proxy.store.postgres import TIMEOUT, connect, unavailable
from proxy.store.queries import Queries
from proxy.system.database_url import shown

_SQL = Queries("doctor")


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Facts about a database. `skew` is its clock minus ours; `delay` is how long an answer took, in seconds."""

    where: str
    version: str
    major: int
    user: str
    skew: float
    delay: float
    problem: str | None
    migrations: int
    may_insert: bool = False
    may_change: bool = False
    has_tomorrow: bool = False


async def inspect_database(url: str) -> DatabaseFacts:
    """Return facts about a database. Raises StoreUnavailableError."""
    connection = await connect(url)
    try:
        # Its clock is compared with the middle of the round trip: a slow network alone must not look like skew.
        async with connection.transaction():  # a pooler gives each transaction one connection
            before = time.time()
            ((version, major, user, theirs),) = await connection.fetch(_SQL["server_facts"])
            after = time.time()
            schema = await read_schema(connection)
        facts = (shown(url), version, major, user, theirs - (before + after) / 2, after - before)
        if schema.problem():
            return DatabaseFacts(*facts, schema.problem(), len(schema.applied))
        tomorrow = dt.datetime.fromtimestamp(theirs, dt.UTC) + dt.timedelta(days=1)
        async with connection.transaction():
            (rights,) = await connection.fetch(_SQL["event_rights"], f"events_{tomorrow:%Y%m%d}")
        return DatabaseFacts(*facts, None, len(schema.applied), *rights)
    except Exception as error:
        raise unavailable(url, error) from error
    finally:
        await connection.close(timeout=TIMEOUT)
