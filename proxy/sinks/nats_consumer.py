"""Takes events from a stream of JetStream, and writes them where they belong: each once at the end.

A message is acknowledged after its event was written. One that comes again, because an acknowledgement was lost or the
producer sent it twice, is known by its event's id where it is written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from nats.js.api import AckPolicy, ConsumerConfig

from proxy.core.event_columns import PoisonError
from proxy.sinks.nats_sink import ACK_SECONDS, close, connect, connect_options, ensure_stream, entry_of
from proxy.sinks.role import SinkError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from proxy.core.event import LogEntry, Written
    from proxy.sinks.settings import NatsSettings

log = structlog.get_logger("interlock.sinks")

ACK_WAIT = 120.0  # seconds after which a message that was not acknowledged is given to another
EMPTY_SECONDS = 1.0


@dataclass(slots=True)
class Consumed:
    """How many events were written so far, and how many messages were no events."""

    events: int = 0
    refused: int = 0


class NatsConsumer:
    """Consumes one stream as `durable`, which is where its position belongs to."""

    def __init__(self, settings: NatsSettings, durable: str, batch: int, linger: float) -> None:
        self.consumed = Consumed()
        self._settings = settings
        self._options = connect_options(settings)
        self._durable = durable
        self._batch = batch
        self._linger = max(EMPTY_SECONDS, linger)

    async def run(self, write: Callable[[Sequence[LogEntry]], Awaitable[Written]], *, until_empty: bool) -> None:
        """Consume until cancelled, or until nothing is left. Raises whatever `write` raises, and SinkError."""
        client = await connect(self._options)
        try:
            stream = client.jetstream(timeout=ACK_SECONDS)
            try:
                await ensure_stream(stream, self._settings)
                reader = await self._subscribe(stream)
            except TimeoutError:
                raise SinkError(f"the NATS server did not answer in {ACK_SECONDS:g} s; check that it is well") from None
            while True:
                try:
                    messages = await reader.fetch(self._batch, timeout=self._linger)
                except TimeoutError:  # nats-py raises its own, and at times Python's, of which its own is a kind
                    if until_empty and await _is_empty(reader):
                        return
                    continue
                await self._take(messages, write)
        finally:
            await close(client)

    async def _subscribe(self, stream: JetStreamContext) -> JetStreamContext.PullSubscription:
        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT, max_ack_pending=10 * self._batch, max_deliver=-1
        )
        settings = self._settings
        return await stream.pull_subscribe(settings.subject, self._durable, settings.stream, config=config)

    async def _take(self, messages: Sequence[Msg], write: Callable[[Sequence[LogEntry]], Awaitable[Written]]) -> None:
        entries: list[LogEntry] = []
        taken: list[Msg] = []
        for message in messages:
            try:
                entries.append(entry_of(message.data, message.headers))
                taken.append(message)
            except PoisonError as error:
                await self._refuse(message, str(error))
        written = await write(entries)
        for index, message in enumerate(taken):
            if (why := written.poison.get(index)) is not None:
                await self._refuse(message, why)
            else:
                await message.ack()
        self.consumed.events += written.kept
        # Acknowledgements are sent when the loop turns: a stop right after this must not leave them behind.
        await asyncio.sleep(0)

    async def _refuse(self, message: Msg, why: str) -> None:
        """Have a message never given again: it is no event, and would else be given for ever."""
        self.consumed.refused += 1
        log.error("a message of the stream is no event", stream=self._settings.stream, reason=why)
        await message.term()


async def _is_empty(reader: JetStreamContext.PullSubscription) -> bool:
    try:
        return not (await reader.consumer_info()).num_pending
    except TimeoutError:  # a slow server is asked again
        return False
