"""An MCP server that does nothing but answer, as fast as Python can: for measuring what is before it."""

from __future__ import annotations

import asyncio
import json

from tests.servers.common import announce, listening_socket, parse_options


class Quick(asyncio.Protocol):
    """One connection: a request with a Content-Length in, its answer out."""

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            self._transport.write(_answer(body))


def _answer(body: bytes) -> bytes:
    number = json.loads(body).get("id") if body else None
    result = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
    answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
    return head.encode() + answer


async def main() -> None:
    sock = listening_socket(parse_options().port)
    server = await asyncio.get_running_loop().create_server(Quick, sock=sock, backlog=1024)
    announce(sock)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
