"""The worst server we can imagine: it runs whatever tool call it can make of the bytes it gets.

Any path, any method, any framing it can guess; HTTP/1 with every liberty, HTTP/2 with or
without TLS, WebSocket, and raw bytes after an upgrade. Every request is answered, and with
`--requests FILE` every request is recorded. If a denied call does not get through to this
one, little gets through elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
from typing import Any

import h2.config
import h2.connection
import h2.events

from tests.servers.common import ExecutionLog, Options, announce, listening_socket, parse_options
from tests.servers.lenient_fields import calls_in_fields, declared_charset
from tests.servers.lenient_read import find_calls

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
LINE_LIMIT = 16 * 1024 * 1024
type Headers = list[tuple[str, str]]


def header(headers: Headers, name: str) -> str:
    """Return every value of a header, joined."""
    return ",".join(value for key, value in headers if key == name)


class Lenient:
    """One server: its log of executions and, where wanted, of requests."""

    def __init__(self, options: Options) -> None:
        self._log = ExecutionLog(options.log)
        self._requests = options.requests.open("ab", buffering=0) if options.requests else None

    def run(self, body: bytes, headers: Headers, target: str = "") -> bytes:
        """Run every call in `body` and give the answer's body."""
        calls, number = find_calls(body, declared_charset(header(headers, "content-type")))
        calls += calls_in_fields(target, body)
        for tool, arguments in calls:
            self._log.executed(tool, arguments)
        text = json.dumps([tool for tool, _ in calls])
        result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
        return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()

    def record(self, method: str, target: str, headers: Headers, body: bytes) -> None:
        if self._requests is None:
            return
        entry = {
            "method": method,
            "target": target,
            "headers": headers,
            "length": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "body": base64.b64encode(body[:65536]).decode(),
        }
        self._requests.write(json.dumps(entry).encode() + b"\n")

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side has had enough."""
        try:
            while await self._request(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether another may follow."""
        line = await _line(reader)
        while line.strip() == b"" and line:
            line = await _line(reader)
        if not line:
            return False
        if line.startswith(b"PRI * HTTP/2"):
            await self._http2(reader, writer, line)
            return False
        if line.lstrip()[:1] in (b"{", b"["):
            self.run(line, [])
            return True
        method, _, rest = line.decode("latin-1").strip().partition(" ")
        target = rest.rpartition(" ")[0] or rest
        headers = await _headers(reader)
        if "100-continue" in header(headers, "expect").lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if method.upper() == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            return True
        body = await _body(reader, headers)
        self.record(method, target, headers, body)
        for hidden in re.finditer(rb"\sHTTP/1\.\d\s*?\r?\n(?:[^\r\n]+\r?\n)*\r?\n", body, re.IGNORECASE):
            self.run(body[hidden.end() :], headers)  # as one that reads none or only some of the body would
        answer = self.run(body, headers, target)
        if "upgrade" in header(headers, "connection").lower():
            return await self._upgrade(reader, writer, headers)
        writer.write(_response(answer, "application/json"))
        return True

    async def _upgrade(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Headers) -> bool:
        protocol = header(headers, "upgrade")
        accept = ""
        if key := header(headers, "sec-websocket-key"):
            digest = hashlib.sha1(key.encode() + WEBSOCKET_GUID).digest()
            accept = f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n"
        answer = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{accept}\r\n"
        writer.write(answer.encode("latin-1"))
        if "websocket" in protocol.lower():
            await self._websocket(reader, writer)
            return False
        return True

    async def _websocket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = everything = b""
        while True:
            first, second = await reader.readexactly(2)
            length = second & 0x7F
            if length >= 126:
                length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8))
            mask = await reader.readexactly(4) if second & 0x80 else bytes(4)
            data = await reader.readexactly(length)
            payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
            if first & 0x0F == 8:
                writer.write(b"\x88\x00")
                return
            message += payload if first & 0x0F < 8 else b""
            everything += payload if first & 0x0F < 8 else b""
            self.run(payload, [])
            # A piece of a message is not answered: a client that has an answer hangs up, and the rest is not read.
            is_whole = not payload or everything.endswith((b"}", b"]", b"\n"))
            if is_whole:
                self.run(everything, [])  # as a bridge to one pipe would
            if first & 0x80:
                answer = self.run(message, []) if message != payload else b'{"ok":true}'
            if first & 0x80 and (is_whole or first & 0x0F != 1):
                writer.write(bytes([0x81, len(answer)]) + answer if len(answer) < 126 else b"\x81\x02{}")
            message = b"" if first & 0x80 else message

    async def _http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes) -> None:
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, validate_inbound_headers=False))
        peer.initiate_connection()
        writer.write(peer.data_to_send())
        data = line
        streams: dict[int, tuple[Headers, bytearray]] = {}
        while data:
            for event in peer.receive_data(data):
                self._http2_event(peer, streams, event)
            writer.write(peer.data_to_send())
            await writer.drain()
            data = await reader.read(65536)

    def _http2_event(self, peer: Any, streams: dict[int, tuple[Headers, bytearray]], event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers = [(_text(key).lower(), _text(value)) for key, value in event.headers or []]
            streams[event.stream_id or 0] = (headers, bytearray())
        elif isinstance(event, h2.events.DataReceived):
            streams[event.stream_id or 0][1].extend(event.data or b"")
            peer.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            headers, body = streams.pop(event.stream_id or 0)
            self.record(header(headers, ":method"), header(headers, ":path"), headers, bytes(body))
            answer = self.run(bytes(body), headers)
            peer.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/json")])
            peer.send_data(event.stream_id, answer, end_stream=True)


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _headers(reader: asyncio.StreamReader) -> Headers:
    """Read headers up to a blank line: bare LF, folding and stray blanks are all fine."""
    headers: Headers = []
    while (line := await _line(reader)).strip(b"\r\n"):
        text = line.decode("latin-1").strip("\r\n")
        if text[0] in " \t" and headers:
            name, value = headers[-1]
            headers[-1] = (name, f"{value} {text.strip()}")
        else:
            name, _, value = text.partition(":")
            headers.append((name.strip().lower(), value.strip()))
    return headers


async def _body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    if "chunked" in header(headers, "transfer-encoding").lower():
        return await _chunks(reader)
    lengths = re.findall(r"\d+", header(headers, "content-length"))
    return await reader.readexactly(int(lengths[-1])) if lengths else b""


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(re.split(rb"[^0-9a-fA-F]", (await _line(reader)).strip())[0] or b"0", 16):
        body += await reader.readexactly(size)
        await _line(reader)
    while (await _line(reader)).strip():
        pass
    return body


def _response(body: bytes, content_type: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _tls(options: Options) -> ssl.SSLContext | None:
    if options.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.tls_cert, options.tls_key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def main() -> None:
    options = parse_options()
    lenient = Lenient(options)
    sock = listening_socket(options.port, options.host)
    server = await asyncio.start_server(lenient.connection, sock=sock, ssl=_tls(options), limit=LINE_LIMIT)
    announce(sock)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
