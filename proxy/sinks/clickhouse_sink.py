"""A sink on ClickHouse: one row an event, which is replaced by itself where it comes again.

The columns are those of the store's events, read from the event's text in the same way, so that what one database takes
the other takes too. The client is a blocking one, so each batch is sent by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import clickhouse_connect
import orjson
from clickhouse_connect.driver.exceptions import ClickHouseError

from proxy.core.event import Written
from proxy.core.event_columns import COLUMNS, PoisonError, columns
from proxy.sinks.role import SinkError
from proxy.sinks.settings import read_secret
from proxy.store.queries import parse_queries
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clickhouse_connect.driver.client import Client

    from proxy.core.event import LogEntry
    from proxy.sinks.settings import ClickHouseSettings

NAMES = (*COLUMNS, "writer", "seq", "chain", "body")
CONNECT_SECONDS = 5
ANSWER_SECONDS = 30
_CODE = re.compile(r"Code: (\d+)\.|error code (\d+)")
_QUERY = re.compile(r" with url: \S+")
# What says that a row is at fault, and not the server: values that cannot be parsed or do not fit their type.
_OF_ROWS = frozenset({6, 26, 27, 41, 53, 69, 70, 72, 117, 131, 321, 349})


class ClickHouseSink:
    """A Sink on one table."""

    batch = 10_000  # few large inserts: each is a part that the server has to merge
    linger = 2.0

    def __init__(self, settings: ClickHouseSettings) -> None:
        self._settings = settings
        self._password = read_secret(settings.password, f"sink {settings.title}, password")
        self._client: Client | None = None

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Insert a batch; return once the server has written it."""
        rows: dict[int, bytes] = {}
        poison: dict[int, str] = {}
        for index, entry in enumerate(entries):
            try:
                rows[index] = row_of(entry)
            except PoisonError as error:
                poison[index] = str(error)
        try:
            await asyncio.to_thread(self._insert, rows, poison)
        except BaseException:
            # A thread that was given up may still use the client.
            self._client = None
            raise
        return Written(len(entries) - len(poison), poison)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.close)

    def _insert(self, rows: dict[int, bytes], poison: dict[int, str]) -> None:
        if not rows:
            return
        client = self._client = self._client or self._open()
        try:
            self._send(client, rows, poison)
        except ClickHouseError as error:
            raise SinkError(f"ClickHouse did not take events: {_first_line(error)}") from error

    def _send(self, client: Client, rows: dict[int, bytes], poison: dict[int, str]) -> None:
        """Insert, by halves where the server says that a row is at fault, so that it keeps no other out."""
        try:
            client.raw_insert(
                self._settings.table,
                NAMES,
                b"\n".join(rows.values()),
                # Answered once it is written, and whatever months the events are of.
                settings={"async_insert": 0, "wait_end_of_query": 1, "throw_on_max_partitions_per_insert_block": 0},
                fmt="JSONEachRow",
            )
        except ClickHouseError as error:
            if not _is_of_rows(error):
                raise
            numbers = list(rows)
            if len(numbers) == 1:
                poison[numbers[0]] = _first_line(error)
                return
            for half in (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]):
                self._send(client, {number: rows[number] for number in half}, poison)

    def _open(self) -> Client:
        """Connect, and make the table and its views. Raises SinkError."""
        client = None
        try:
            client = clickhouse_connect.get_client(**self._options())
            if self._settings.create:
                for statement in statements(self._settings.table):
                    client.command(statement)
        except Exception as error:
            if client is not None:
                with contextlib.suppress(Exception):
                    client.close()
            raise SinkError(f"{self._settings.url} cannot be used: {_first_line(error)}") from error
        return client

    def _options(self) -> dict[str, Any]:
        settings, parts = self._settings, urlsplit(self._settings.url)
        secure = parts.scheme == "https"
        return {
            "host": parts.hostname,
            "port": parts.port or (8443 if secure else 8123),
            "interface": parts.scheme,
            "username": settings.user,
            "password": self._password or "",
            "database": settings.database,
            "ca_cert": None if settings.ca is None else str(settings.ca),
            "connect_timeout": CONNECT_SECONDS,
            "send_receive_timeout": ANSWER_SECONDS,
            "autogenerate_session_id": False,
            "query_retries": 0,
        }


def open_sink(settings: ClickHouseSettings) -> ClickHouseSink:
    return ClickHouseSink(settings)


def statements(table: str) -> list[str]:
    """Return what makes the table and its views."""
    base = table.removesuffix("_events")
    names = {"{events}": table, "{calls}": f"{base}_tool_calls", "{denied}": f"{base}_denied_calls"}
    found = []
    for statement in parse_queries((sql_dir() / "clickhouse" / "tables.sql").read_text()).values():
        for mark, name in names.items():
            statement = statement.replace(mark, name)  # noqa: PLW2901
        found.append(statement)
    return found


def row_of(entry: LogEntry) -> bytes:
    """Return a row as JSON. Raises PoisonError where the entry is no event."""
    values = columns(entry.body, entry.columns and list(entry.columns))
    return orjson.dumps(dict(zip(NAMES, (*values, entry.writer, entry.seq, entry.chain, entry.body), strict=True)))


def _is_of_rows(error: ClickHouseError) -> bool:
    found = _CODE.search(str(error))
    return found is not None and int(found[1] or found[2]) in _OF_ROWS


def _first_line(error: Exception) -> str:
    """Return what an error says, the same each time: without the parameters of the request, which has an id."""
    return _QUERY.sub("", str(error) or type(error).__name__).partition("\n")[0][:300]
