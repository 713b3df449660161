"""A sink on a syslog server: UDP (RFC 5426), TCP (RFC 6587, octet counting) or TLS (RFC 5425).

Syslog acknowledges nothing. Over TCP and TLS a batch counts once the other machine's kernel has all of it, so that a
connection that breaks sends it again; what that server loses itself nobody learns. Over UDP a batch counts once sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import socket
import ssl
import struct
import sys
import termios
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from proxy.core.event import Written
from proxy.sinks.role import SinkError
from proxy.telemetry.batches import read_batch
from proxy.telemetry.cef import cef_line
from proxy.telemetry.http_delivery import tls_context
from proxy.telemetry.syslog import cef_message, octet_counted, syslog_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.event import LogEntry
    from proxy.sinks.telemetry_settings import SyslogSettings
    from proxy.telemetry.batches import Numbered
    from proxy.telemetry.exported_event import ExportedEvent

LOOK_SECONDS: Final = 0.01


class SyslogSink:
    """A Sink on one server."""

    batch = 500
    linger = 0.0

    def __init__(self, settings: SyslogSettings) -> None:
        """Raise ConfigError where a file of certificates cannot be used."""
        self._settings = settings
        parts = urlsplit(settings.url)
        self._scheme, self._address = parts.scheme, (parts.hostname or "", parts.port or 0)
        secure = self._scheme == "tls"
        self._tls = tls_context(settings.ca, settings.certificate, settings.key) if secure else None
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Return once the batch has left, by TCP and TLS once it has arrived."""
        events, poison = read_batch(entries, with_arguments=self._settings.arguments)
        try:
            async with asyncio.timeout(self._settings.timeout):
                if self._scheme == "udp":
                    poison |= await asyncio.to_thread(self._send_datagrams, events)
                else:
                    await self._send_stream([self._line(event) for _, event in events])
        except (OSError, ssl.SSLError, TimeoutError) as error:
            await self.close()
            raise SinkError(f"{self._settings.url}: {type(error).__name__} {error}".rstrip()) from error
        except BaseException:
            # Half a message may have gone: the next has to begin on a new connection.
            await self.close()
            raise
        return Written(len(entries) - len(poison), poison)

    def _line(self, event: ExportedEvent) -> str:
        return cef_message(event, cef_line) if self._settings.format == "cef" else syslog_line(event)

    def _send_datagrams(self, events: Sequence[Numbered]) -> dict[int, str]:
        """Send each event as a datagram; return those that are too large for one. Blocks. Raises OSError."""
        poison: dict[int, str] = {}
        family, kind, protocol, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sender:
            sender.settimeout(self._settings.timeout)
            sender.connect(address)  # so that a port where nobody listens is an error
            for index, event in events:
                try:
                    sender.send(self._line(event).encode("utf-8", "replace"))
                except OSError as error:
                    if error.errno != errno.EMSGSIZE:
                        raise
                    poison[index] = "it is larger than a datagram; use tcp or tls"
        return poison

    async def _send_stream(self, lines: Sequence[str]) -> None:
        reader, writer = await self._open()
        if reader.at_eof():
            await self.close()
            reader, writer = await self._open()
        for line in lines:
            writer.write(octet_counted(line))
        await writer.drain()
        await _arrived(reader, writer)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._stream is None:
            # A context that is None is no TLS.
            self._stream = await asyncio.open_connection(*self._address, ssl=self._tls)
        return self._stream

    async def check(self) -> str:
        """Return that the server can be reached; nothing is sent. Raises SinkError."""
        try:
            async with asyncio.timeout(self._settings.timeout):
                if self._scheme == "udp":
                    await asyncio.to_thread(socket.getaddrinfo, *self._address, type=socket.SOCK_DGRAM)
                    return "the server has an address; whether it listens, UDP does not tell"
                await self._open()
        except (OSError, TimeoutError) as error:
            raise SinkError(f"{self._settings.url}: {type(error).__name__} {error}".rstrip()) from error
        return "the server can be reached"

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream[1].close()
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await stream[1].wait_closed()


async def _arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return once the other side's kernel has everything. Raises OSError where the connection ended before."""
    connection = writer.get_extra_info("socket")
    while True:
        if reader.at_eof() or writer.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        if not writer.transport.get_write_buffer_size() and not _unacknowledged(connection.fileno()):
            return
        await asyncio.sleep(LOOK_SECONDS)


def _unacknowledged(descriptor: int) -> int:
    """Return how many bytes the other side has not acknowledged; Linux knows (SIOCOUTQ)."""
    if sys.platform != "linux":
        return 0
    number: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))[0]
    return number


def open_sink(settings: SyslogSettings) -> SyslogSink:
    return SyslogSink(settings)
