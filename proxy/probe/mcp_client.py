"""An MCP client for one stdio server, which trusts nothing that the server sends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from proxy.errors import InterlockError, WireError
from proxy.gate.tool_descriptions import strings
from proxy.wire.jsonrpc import parse_json
from proxy.wire.stdio_lines import BLANK, LineSplitter, TooLong, as_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from proxy.core.model import JsonObject

REVISION = "2025-11-25"
STATELESS = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
METHOD_NOT_FOUND = -32601
MAX_LINE = 16 << 20
MAX_PAGES = 50
MAX_LISTED = 500
# Of what a server asks the client during one call.
MAX_ASKED, MAX_ASKED_TEXT = 20, 1 << 16
# What clients of the SDK call themselves by default: a server that knows it is probed behaves.
CLIENT = {"name": "mcp", "version": "0.1.0"}


def stateless_meta(capabilities: JsonObject) -> JsonObject:
    """Return the `_meta` that every request carries where there is no handshake."""
    fields = {"protocolVersion": STATELESS, "clientCapabilities": capabilities, "clientInfo": CLIENT}
    return {f"{PREFIX}{name}": value for name, value in fields.items()}


class RequestRefusedError(InterlockError):
    """A request was answered with a JSON-RPC error; `code` is its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerGoneError(InterlockError):
    """The server has ended, or has closed its stdin."""


class RequestTimeoutError(InterlockError):
    """A request was not answered in time."""


class McpClient:
    """One session. `read` and `write` are the server's stdout and stdin; `roots` the folders offered to it."""

    def __init__(
        self, read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]], roots: Sequence[str] = ()
    ) -> None:
        self._read = read
        self._write = write
        self._roots = roots
        self._capabilities: JsonObject = {"roots": {"listChanged": False}} if roots else {}
        self._next = 0
        self._meta: JsonObject = {}
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._asked: list[str] = []
        self._listener = asyncio.create_task(self._listen())

    async def close(self) -> None:
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listener

    async def open_session(self, seconds: float) -> JsonObject:
        """Open the session, with a handshake or without; return the server's description. Raises as `request` does."""
        hello = {"protocolVersion": REVISION, "capabilities": self._capabilities, "clientInfo": CLIENT}
        try:
            info = await self.request("initialize", hello, seconds)
        except RequestRefusedError:  # a server of revision 2026-07-28 knows no handshake
            self._meta = stateless_meta(self._capabilities)
            return await self.request("server/discover", {}, seconds)
        await self.notify("notifications/initialized", {})
        return info

    async def list_all(self, method: str, key: str, seconds: float) -> list[JsonObject]:
        """Return what a server lists, over all its pages; nothing where it has no such method."""
        try:
            return await list_pages(lambda cursor: self.request(method, cursor, seconds), key)
        except RequestRefusedError as error:
            if error.code == METHOD_NOT_FOUND:
                return []
            raise

    async def request(self, method: str, params: JsonObject, seconds: float) -> JsonObject:
        """Return a result. Raises RequestRefusedError, ServerGoneError, or RequestTimeoutError after cancelling it."""
        self._next += 1
        number = self._next
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        meta = {"_meta": {**params.get("_meta", {}), **self._meta}} if self._meta else {}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **meta}}
        try:
            await self._send(message)
            answer = await asyncio.wait_for(answered, seconds)
        except TimeoutError:
            await self.notify("notifications/cancelled", {"requestId": number, "reason": "took too long"})
            raise RequestTimeoutError(f"the server did not answer {method} within {seconds:g} seconds") from None
        finally:
            self._waiting.pop(number, None)
        return _result(answer, method)

    async def notify(self, method: str, params: JsonObject) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def _send(self, message: JsonObject) -> None:
        if self._listener.done():
            raise ServerGoneError("the server has ended")
        try:
            await self._write(as_line(message))
        except OSError as error:
            raise ServerGoneError("the server has ended") from error

    async def _listen(self) -> None:
        splitter = LineSplitter(MAX_LINE)
        try:
            while data := await self._read():
                for line in splitter.feed(data):
                    await self._take(line)
        finally:
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(ServerGoneError("the server has ended"))

    async def _take(self, line: bytes | TooLong) -> None:
        # Servers print all sorts of things to stdout: what is no message is ignored.
        message: Any = None
        with contextlib.suppress(WireError):
            message = None if isinstance(line, TooLong) else parse_json(line.strip(BLANK))
        if not isinstance(message, dict):
            return
        number = message.get("id")
        if "method" not in message:
            answered = self._waiting.get(number) if isinstance(number, int) else None
            if answered is not None and not answered.done():
                answered.set_result(message)
        elif "id" in message:
            with contextlib.suppress(ServerGoneError):
                await self._send(self._answer(message))

    def take_asked(self) -> list[str]:
        """Return the texts of what the server has asked the client's model or user since the last time."""
        asked, self._asked = self._asked, []
        return asked

    def _answer(self, request: JsonObject) -> JsonObject:
        """Answer a request of the server: it gets the roots, and everything else is refused."""
        head = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "roots/list" and self._roots:
            return {**head, "result": {"roots": [{"uri": f"file://{path}"} for path in self._roots]}}
        if request["method"] == "ping":
            return {**head, "result": {}}
        if len(self._asked) < MAX_ASKED:
            self._asked.append("\n".join(text for _, text in strings(request.get("params", {})))[:MAX_ASKED_TEXT])
        return {**head, "error": {"code": METHOD_NOT_FOUND, "message": "this client does not do that"}}


async def list_pages(fetch: Callable[[JsonObject], Awaitable[JsonObject]], key: str) -> list[JsonObject]:
    """Return the objects of every page of a list, bounded: a server may never come to a last page."""
    found: list[JsonObject] = []
    cursor: JsonObject = {}
    for _ in range(MAX_PAGES):
        page = await fetch(cursor)
        listed = page.get(key)
        found += [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        if not isinstance(page.get("nextCursor"), str) or len(found) >= MAX_LISTED:
            break
        cursor = {"cursor": page["nextCursor"]}
    return found[:MAX_LISTED]


def _result(answer: JsonObject, method: str) -> JsonObject:
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        raise RequestRefusedError(code if isinstance(code, int) else 0, f"{method}: {str(error.get('message'))[:300]}")
    result = answer.get("result")
    if not isinstance(result, dict):
        raise RequestRefusedError(0, f"{method} was answered with neither a result nor an error")
    return result
