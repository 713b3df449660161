"""A sink on NATS JetStream: one message an event, known by the event's id.

The message is the event's text as it is stored. Its headers carry the id, for which the server ignores a message that
it has already within its duplicate window, and the event's place in its writer's chain, so that whoever consumes the
stream can store and verify it as the store does. Past the window a message may be there twice: consumers go by id.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import ssl
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StoreCompression, StreamConfig
from nats.js.errors import NotFoundError

from proxy.core.event import LogEntry, Written
from proxy.core.event_columns import PoisonError, columns
from proxy.sinks.role import SinkError
from proxy.sinks.settings import read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.js import JetStreamContext
    from nats.js.api import StreamInfo

    from proxy.sinks.settings import NatsSettings

ID, WRITER, SEQ, CHAIN = "Nats-Msg-Id", "Interlock-Writer", "Interlock-Seq", "Interlock-Chain"
ENCODING = "Content-Encoding"
ACK_SECONDS = 10.0
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 1.0
HEADER_BYTES = 1024  # more than our headers take of a message
MAX_INFLATED = 256 << 20
_PLAIN = re.compile(r"[\x21-\x7e]{1,200}")  # what a header may hold: no space, no line break


class NatsSink:
    """A Sink on one stream."""

    batch = 1000
    linger = 0.0

    def __init__(self, settings: NatsSettings) -> None:
        self._settings = settings
        self._options = connect_options(settings)
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._cut = asyncio.Event()  # set once a connection was lost: answers that it owed never come

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Publish a batch, and return once the server has acknowledged every message of it."""
        client, stream = await self._open()
        poison: dict[int, str] = {}
        messages = []
        for index, entry in enumerate(entries):
            try:
                messages.append(message_of(entry, client.max_payload - HEADER_BYTES))
            except PoisonError as error:
                poison[index] = str(error)
        try:
            await self._publish(stream, messages)
        except BaseException:
            # The answers of this batch must not be taken for those of the next.
            await self._drop()
            raise
        return Written(len(entries) - len(poison), poison)

    async def _publish(self, stream: JetStreamContext, messages: list[tuple[bytes, dict[str, str]]]) -> None:
        subject, name = self._settings.subject, self._settings.stream
        acks = [await stream.publish_async(subject, body, stream=name, headers=headers) for body, headers in messages]
        for ack in acks:
            ack.add_done_callback(_retrieve)  # one that fails later, when nobody waits for it any more, is no news
        cut = asyncio.create_task(self._cut.wait())
        answers = asyncio.create_task(_all_answered(acks))
        await asyncio.wait({answers, cut}, timeout=ACK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        done, waiting = [one for one in acks if one.done()], [one for one in acks if not one.done()]
        for task in (answers, cut):
            task.cancel()
        if failed := next((error for one in done if (error := one.exception()) is not None), None):
            raise SinkError(f"JetStream did not take an event: {failed}") from failed
        if waiting:
            why = "the connection was lost" if self._cut.is_set() else f"{ACK_SECONDS:g} s have passed"
            raise SinkError(f"JetStream acknowledged {len(done)} of {len(acks)} events, then {why}")

    async def _open(self) -> tuple[Client, JetStreamContext]:
        """Return a connection to a stream that was found fit. Raises SinkError."""
        if self._client is not None and self._stream is not None and self._client.is_connected:
            return self._client, self._stream
        await self._drop()
        self._cut = asyncio.Event()
        self._client = client = await connect(self._options, self._cut)
        stream = client.jetstream(timeout=ACK_SECONDS, publish_async_max_pending=2 * self.batch)
        await ensure_stream(stream, self._settings)
        self._stream = stream
        return client, stream

    async def close(self) -> None:
        await self._drop()

    async def _drop(self) -> None:
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            await close(client)


def _retrieve(ack: asyncio.Future[Any]) -> None:
    if not ack.cancelled():
        ack.exception()


async def _all_answered(acks: Sequence[asyncio.Future[Any]]) -> object:
    return await asyncio.wait(acks) if acks else None


def open_sink(settings: NatsSettings) -> NatsSink:
    return NatsSink(settings)


def connect_options(settings: NatsSettings) -> dict[str, Any]:
    """Return what nats.connect is called with. Raises ConfigError where a secret cannot be read."""
    options: dict[str, Any] = {
        "servers": list(settings.url),
        "name": "interlock",
        "user": settings.user,
        "password": read_secret(settings.password, f"sink {settings.title}, password"),
        "token": read_secret(settings.token, f"sink {settings.title}, token"),
        "user_credentials": None if settings.credentials is None else str(settings.credentials),
        # Another node of the cluster is tried at once; where none answers, the feed tries later.
        "connect_timeout": CONNECT_SECONDS,
        "max_reconnect_attempts": 2,
        "reconnect_time_wait": 0.25,
    }
    if settings.ca is not None or settings.certificate is not None:
        context = ssl.create_default_context(cafile=None if settings.ca is None else str(settings.ca))
        if settings.certificate is not None:
            context.load_cert_chain(str(settings.certificate))
        options["tls"] = context
    return {name: value for name, value in options.items() if value is not None}


async def connect(options: dict[str, Any], cut: asyncio.Event | None = None) -> Client:
    """Return a connection; `cut` is set when it is lost. Raises SinkError, which says nothing of credentials."""
    reasons: dict[str, None] = {}  # each once, in order

    async def note(error: Exception) -> None:  # else the client logs each with its traceback
        reasons[str(error) or type(error).__name__] = None

    async def lost() -> None:
        if cut is not None:
            cut.set()

    client = Client()
    try:
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            await client.connect(**options, error_cb=note, disconnected_cb=lost)
    except BaseException as error:
        await close(client)
        if not isinstance(error, Exception):
            raise
        why = "; ".join(reasons) or str(error) or type(error).__name__
        raise SinkError(f"no NATS server of {', '.join(options['servers'])} can be used: {why}") from error
    return client


async def close(client: Client) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):  # a TLS connection that never came about is never closed either
            await client.close()


async def ensure_stream(stream: JetStreamContext, settings: NatsSettings) -> None:
    """Create the stream where it is missing and may be. Raises SinkError where it would not keep events."""
    try:
        info = await stream.stream_info(settings.stream)
    except NotFoundError as error:
        if not settings.create:
            raise SinkError(
                f"there is no stream {settings.stream}; create it with subject {settings.subject}, or set create: true"
            ) from error
        config = StreamConfig(
            name=settings.stream,
            subjects=[settings.subject],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            discard=DiscardPolicy.NEW,  # a limit that somebody sets later refuses new events, and drops no old one
            num_replicas=settings.replicas,
            duplicate_window=settings.duplicate_window,
            compression=StoreCompression.S2,
        )
        info = await stream.add_stream(config)
    if wrong := unfit(info, settings.subject):
        raise SinkError(f"the stream {settings.stream} would not keep events: {wrong}")


def unfit(info: StreamInfo, subject: str) -> str | None:
    """Return why a stream would lose events that were acknowledged, or never get them; None where it would not."""
    config = info.config
    if not any(_covers(pattern, subject) for pattern in config.subjects or ()):
        return f"its subjects {config.subjects} do not include {subject}"
    if config.no_ack:
        return "it acknowledges nothing (no_ack); recreate it with acknowledgements"
    if config.storage != StorageType.FILE:
        return "its storage is memory; recreate it with storage: file"
    return None


def _covers(pattern: str, subject: str) -> bool:
    wanted, given = pattern.split("."), subject.split(".")
    for number, part in enumerate(wanted):
        if part == ">":
            return len(given) > number
        if number >= len(given) or part not in ("*", given[number]):
            return False
    return len(wanted) == len(given)


def message_of(entry: LogEntry, limit: int) -> tuple[bytes, dict[str, str]]:
    """Return the message of an event. Raises PoisonError where it is no event, or larger than a message may be."""
    event_id = str(columns(entry.body, entry.columns and list(entry.columns))[0])
    if not _PLAIN.fullmatch(event_id):
        raise PoisonError("its event_id cannot be a header")
    headers = {ID: event_id}
    if entry.writer is not None and entry.seq is not None and entry.chain is not None:
        headers |= {WRITER: entry.writer, SEQ: str(entry.seq), CHAIN: entry.chain}
    body = entry.body.encode()
    if len(body) > limit:
        body = gzip.compress(body, 6, mtime=0)
        headers[ENCODING] = "gzip"
        if len(body) > limit:
            raise PoisonError(f"it is larger than a message may be ({limit} bytes)")
    return body, headers


def entry_of(body: bytes, headers: dict[str, str] | None) -> LogEntry:
    """Return the event of a message. Raises PoisonError where there is none."""
    headers = headers or {}
    try:
        text = (_inflate(body) if headers.get(ENCODING) == "gzip" else body).decode()
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise PoisonError(f"it cannot be read: {error}") from error
    seq = headers.get(SEQ, "")
    if not (seq.isascii() and seq.isdecimal() and len(seq) < len(str(1 << 63))):
        return LogEntry(text)
    return LogEntry(text, headers.get(WRITER), int(seq), headers.get(CHAIN))


def _inflate(body: bytes) -> bytes:
    import io  # noqa: PLC0415  for large events alone

    with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
        text = file.read(MAX_INFLATED + 1)
    if len(text) > MAX_INFLATED:
        raise PoisonError(f"it inflates to more than {MAX_INFLATED} bytes")
    return text
