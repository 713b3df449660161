"""`interlock audit consume`: from a stream to the store or another sink."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.audit.open_events import open_events
from proxy.audit.shipper import BATCH
from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import count, print_json_lines, print_note
from proxy.config import Settings
from proxy.core.event import LogEntry, Written
from proxy.errors import ConfigError
from proxy.sinks.open_sinks import open_sink
from proxy.sinks.settings import NatsSettings, SinkSettings

if TYPE_CHECKING:
    from proxy.sinks.nats_consumer import Consumed

STORE = "store"
EPILOG = """
Examples:

  interlock audit consume --to store

  interlock audit consume --from nats --to clickhouse --until-empty
"""

type Write = Callable[[Sequence[LogEntry]], Awaitable[Written]]


@takes(store_settings)
def consume(
    settings: Settings,
    *,
    to: Annotated[str, typer.Option(help="The name of a sink of the settings, or store.")],
    source: Annotated[str, typer.Option("--from", help="The name of a sink of kind nats.")] = "nats",
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End once the stream is empty.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take events from a stream of NATS JetStream, and write them to the store or to another sink, each once.

    A batch is acknowledged after it was written. It runs until Ctrl-C.
    """
    stream = _named(settings, source)
    if not isinstance(stream, NatsSettings):
        raise ConfigError(f"--from {source} is no sink of kind nats")
    if to == source:
        raise ConfigError(f"--to {to} is the stream itself; give another sink, or store")
    open_sink(stream)  # tells what is not installed
    consumed = asyncio.run(_consume(settings, stream, to, until_empty=until_empty))
    if as_json:
        print_json_lines([{"from": source, "to": to, **asdict(consumed)}])
    else:
        print_note(f"{count(consumed.events, 'event')} from {source} to {to}, {consumed.refused} refused")


async def _consume(settings: Settings, stream: NatsSettings, to: str, *, until_empty: bool) -> Consumed:
    from proxy.sinks.nats_consumer import NatsConsumer  # noqa: PLC0415  its client is an extra

    async with _destination(settings, to) as (write, batch, linger):
        consumer = NatsConsumer(stream, f"interlock-{to}", batch, linger)
        with contextlib.suppress(asyncio.CancelledError):  # Ctrl-C: what was written is acknowledged
            await consumer.run(write, until_empty=until_empty)
        return consumer.consumed


@contextlib.asynccontextmanager
async def _destination(settings: Settings, to: str) -> AsyncIterator[tuple[Write, int, float]]:
    if to == STORE:
        store = open_events(settings.postgres, settings.state_dir, connections=settings.database_connections)
        try:
            yield store.write, BATCH, 0.0
        finally:
            await store.close()
        return
    sink = open_sink(_named(settings, to))
    try:
        yield sink.write, sink.batch, sink.linger
    finally:
        await sink.close()


def _named(settings: Settings, name: str) -> SinkSettings:
    found = next((one for one in settings.sinks if one.title == name), None)
    if found is None:
        names = ", ".join(one.title for one in settings.sinks) or "none"
        raise ConfigError(f"there is no sink {name!r} in the settings; there is {names}")
    return found
