"""A client that speaks MCP to one server over stdio, a request at a time, and trusts nothing it is told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from proxy.errors import InterlockError, WireError
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
CLIENT = {"name": "interlock-probe", "version": "1"}


def stateless_meta(capabilities: JsonObject) -> JsonObject:
    """Return what every request carries where there is no handshake."""
    return {
        f"{PREFIX}protocolVersion": STATELESS,
        f"{PREFIX}clientCapabilities": capabilities,
        f"{PREFIX}clientInfo": CLIENT,
    }


class RequestRefusedError(InterlockError):
    """A request was answered with an error; `code` is its number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerGoneError(InterlockError):
    """The server ended, or took nothing more, while it was spoken to."""


class RequestTimeoutError(InterlockError):
    """A request was not answered in time."""


class McpClient:
    """One conversation. `read` and `write` are the server's ends; `roots` the folders it is told of."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        roots: Sequence[str] = (),
    ) -> None:
        self._read = read
        self._write = write
        self._roots = roots
        self._next = 0
        self._meta: JsonObject = {}
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}
        self._listener = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Stop listening."""
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listener

    async def greet(self, seconds: float) -> JsonObject:
        """Open the conversation in whichever way the server knows; return what it says of itself.

        Raises PeerError, PeerGoneError or PeerTimeoutError.
        """
        hello = {"protocolVersion": REVISION, "capabilities": self._capabilities(), "clientInfo": CLIENT}
        try:
            said = await self.ask("initialize", hello, seconds)
        except RequestRefusedError:
            self._meta = stateless_meta(self._capabilities())
            return await self.ask("server/discover", {}, seconds)
        await self.tell("notifications/initialized", {})
        return said

    def _capabilities(self) -> JsonObject:
        return {"roots": {"listChanged": False}} if self._roots else {}

    async def list_all(self, method: str, key: str, seconds: float) -> list[JsonObject]:
        """Return what a server lists, over all its pages; nothing where it knows no such list."""
        found: list[JsonObject] = []
        cursor: JsonObject = {}
        for _ in range(MAX_PAGES):
            try:
                page = await self.ask(method, cursor, seconds)
            except RequestRefusedError as error:
                if error.code == METHOD_NOT_FOUND:
                    return found
                raise
            listed = page.get(key)
            found += [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
            following = page.get("nextCursor")
            if not isinstance(following, str) or len(found) >= MAX_LISTED:
                break
            cursor = {"cursor": following}
        return found[:MAX_LISTED]

    async def ask(self, method: str, params: JsonObject, seconds: float) -> JsonObject:
        """Return the result of a request.

        Raises PeerError where the server refuses it, PeerTimeoutError where it does
        not answer (it is told to stop), and PeerGoneError where it has ended.
        """
        self._next += 1
        number = self._next
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        meta = {"_meta": {**params.get("_meta", {}), **self._meta}} if self._meta else {}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **meta}}
        try:
            await self._send(message)
            answer = await asyncio.wait_for(answered, seconds)
        except TimeoutError:
            await self.tell("notifications/cancelled", {"requestId": number, "reason": "took too long"})
            raise RequestTimeoutError(f"the server did not answer {method} within {seconds:g} seconds") from None
        finally:
            self._waiting.pop(number, None)
        return _result(answer, method)

    async def tell(self, method: str, params: JsonObject) -> None:
        """Send a notification."""
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
        """Take one line; what is no message is passed over, as servers print all sorts of things."""
        if isinstance(line, TooLong):
            return
        try:
            message: Any = parse_json(line.strip(BLANK))
        except WireError:
            return
        if not isinstance(message, dict):
            return
        if "method" in message:
            if "id" in message:
                with contextlib.suppress(ServerGoneError):
                    await self._send(self._answer(message))
            return
        number = message.get("id")
        answered = self._waiting.get(number) if isinstance(number, int) else None
        if answered is not None and not answered.done():
            answered.set_result(message)

    def _answer(self, request: JsonObject) -> JsonObject:
        """Answer what a server asks of its client: it gets the roots, and nothing else is done for it."""
        head = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "roots/list" and self._roots:
            return {**head, "result": {"roots": [{"uri": f"file://{path}"} for path in self._roots]}}
        if request["method"] == "ping":
            return {**head, "result": {}}
        return {**head, "error": {"code": METHOD_NOT_FOUND, "message": "this client does not do that"}}


def _result(answer: JsonObject, method: str) -> JsonObject:
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        raise RequestRefusedError(code if isinstance(code, int) else 0, f"{method}: {str(error.get('message'))[:300]}")
    result = answer.get("result")
    if not isinstance(result, dict):
        raise RequestRefusedError(0, f"{method} was answered with neither a result nor an error")
    return result
