from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.sinks.role import SinkError
from proxy.sinks.telemetry_settings import SyslogSettings
from proxy.telemetry.syslog import ELEMENT, MAX_BYTES
from proxy.telemetry.syslog_sink import SyslogSink, open_sink
from tests.support import cef_parser
from tests.support.syslog_parser import parse, unframe
from tests.support.telemetry_events import CALL, HOSTILE, PLAIN, entry, hostile
from tests.support.timeouts import PATIENCE

MANY = [entry(fields, number) for number, fields in enumerate(PLAIN.values(), 1)]
IDS = [fields["event_id"] for fields in PLAIN.values()]


class Server:
    """Takes streams, and keeps what came by each connection."""

    def __init__(self) -> None:
        self.streams: list[bytes] = []
        self.changed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.streams)
        self.streams.append(b"")
        while piece := await reader.read(65536):
            self.streams[number] += piece
            self.changed.set()
        writer.close()

    async def messages(self, count: int) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = [line for stream in self.streams for line in unframe(stream)]
                except ValueError:
                    found = []
                if len(found) >= count:
                    return found
                self.changed.clear()
                await self.changed.wait()


def sink(url: str, **more: Any) -> SyslogSink:
    return open_sink(SyslogSettings(kind="syslog", url=url, **more))


async def test_a_stream_is_framed_and_whole() -> None:
    server = Server()
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        made = sink(f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        for _ in range(2):
            assert (await made.write(MANY)).kept == len(MANY)
        found = [parse(line).data[ELEMENT]["event_id"] for line in await server.messages(2 * len(MANY))]
        assert found == IDS * 2
        assert len(server.streams) == 1
        await made.close()


async def test_cef_is_the_text_of_messages() -> None:
    server = Server()
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        made = sink(f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}", format="cef")
        await made.write([entry(hostile(text), number) for number, text in enumerate(HOSTILE.values(), 1)])
        lines = await server.messages(len(HOSTILE))
        assert {cef_parser.parse(parse(line).text)[1]["act"] for line in lines} == {"deny"}
        await made.close()


async def test_a_server_that_ends_gets_the_batch_again_by_a_new_connection() -> None:
    server = Server()
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    made = sink(f"tcp://127.0.0.1:{port}", timeout=1)
    await made.write(MANY)
    listening.close()
    listening.close_clients()
    await listening.wait_closed()
    with pytest.raises(SinkError, match=r"tcp://127\.0\.0\.1"):
        await made.write(MANY)
    second = Server()
    async with await asyncio.start_server(second, "127.0.0.1", port):
        await made.write(MANY)
        assert len(await second.messages(len(MANY))) == len(MANY)
        await made.close()


async def test_a_server_that_reads_nothing_has_not_taken_a_large_batch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made = sink(f"tcp://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)
        large = [entry(CALL | {"tool": "x" * 4000, "rule": "y" * 4000}, n) for n in range(1, 1000)]
        with pytest.raises(SinkError, match="TimeoutError"):
            await made.write(large)


async def test_tls_is_verified(tmp_path: Path) -> None:
    authority, server = trustme.CA(), Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with await asyncio.start_server(server, "127.0.0.1", 0, ssl=context) as listening:
        url = f"tls://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED"):
            await sink(url).write(MANY)
        made = sink(url, ca=tmp_path / "ca.pem")
        await made.write(MANY)
        assert len(await server.messages(len(MANY))) == len(MANY)
        await made.close()


async def test_a_datagram_is_one_message_and_a_port_without_server_is_an_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(PATIENCE)
        url = f"udp://127.0.0.1:{listening.getsockname()[1]}"
        assert (await sink(url).write(MANY)).kept == len(MANY)
        found = [parse(listening.recv(65536).decode()).data[ELEMENT]["event_id"] for _ in MANY]
        assert found == IDS
        large = entry(CALL | dict.fromkeys(("tool", "rule", "agent", "server", "method"), "€" * 40_000), 1)
        assert (await sink(url, arguments=True).write([large])).poison == {}
        assert len(listening.recv(65536)) <= MAX_BYTES
    with pytest.raises(SinkError, match="ConnectionRefused"):
        await sink(url).write(MANY)
