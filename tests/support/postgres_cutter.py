"""A line to Postgres that can be cut or stopped at a chosen word."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

type How = Literal["before", "after", "hang"]


async def _nothing() -> None:
    pass


class Cutter:
    """Passes everything between clients and the Postgres at `url`, until a client sends `word`.

    Then, as often as `times` says: `before` cuts the line without passing it
    on, `after` cuts it once the server has answered, `hang` keeps it open and
    passes nothing any more. `then` runs once the server's end is cut, before the client's is.
    """

    def __init__(
        self,
        url: str,
        how: How,
        *,
        word: bytes = b"COMMIT;",
        times: int = 1,
        then: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        parts = urlsplit(url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._folder = tempfile.TemporaryDirectory(prefix="interlock-cut-")
        self.url = parts._replace(query=f"host={self._folder.name}").geturl()
        self.cuts = 0
        self._how, self._word, self._times, self._then = how, word, times, then
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, Path(self._folder.name) / ".s.PGSQL.5432")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server, to_server = await asyncio.open_unix_connection(self._socket)
        back = asyncio.create_task(_pass_on(server, to_client))
        try:
            await self._forward(client, to_server, back, server)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            back.cancel()
            for writer in (to_client, to_server):
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            self._tasks.discard(task)

    async def _forward(
        self,
        client: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        back: asyncio.Task[None],
        server: asyncio.StreamReader,
    ) -> None:
        while data := await client.read(1 << 16):
            if self._word not in data or self.cuts >= self._times:
                to_server.write(data)
                continue
            self.cuts += 1
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            if self._how == "after":
                to_server.write(data)
                await server.read(1 << 16)
            if self._how == "hang":
                await asyncio.Event().wait()
            to_server.close()
            await self._then()
            return


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
