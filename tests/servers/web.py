"""An ordinary web server, not MCP: downloads, uploads, echoes, event streams, and JSON-RPC over a WebSocket."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.servers.common import ExecutionLog, parse_options, serve

CHUNK = b"0123456789abcdef" * 4096


async def download(request: Request) -> Response:
    """Send as many bytes as `size` says; with `pause`, the first chunk a while before the rest."""
    size, pause = int(request.query_params["size"]), float(request.query_params.get("pause", 0))

    async def body() -> AsyncIterator[bytes]:
        sent = 0
        while sent < size:
            piece = CHUNK[: size - sent]
            yield piece
            if not sent:
                await asyncio.sleep(pause)
            sent += len(piece)

    return StreamingResponse(body(), media_type="application/octet-stream")


async def events(request: Request) -> Response:
    """Stream two events, `pause` seconds apart."""
    pause = float(request.query_params.get("pause", 2.5))

    async def body() -> AsyncIterator[bytes]:
        yield b"data: begin\n\n"
        await asyncio.sleep(pause)
        yield b"data: end\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


async def upload(request: Request) -> Response:
    digest, size = hashlib.sha256(), 0
    async for chunk in request.stream():
        digest.update(chunk)
        size += len(chunk)
    return JSONResponse({"size": size, "sha256": digest.hexdigest()})


async def echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse(
        {
            "method": request.method,
            "path": request.url.path,
            "headers": [[name.decode(), value.decode()] for name, value in request.headers.raw],
            "body": body.decode("latin-1"),
        }
    )


async def redirect(request: Request) -> Response:
    """Send the client to where `to` says, or `moved`, in which each character is the next one."""
    asked = request.query_params
    return RedirectResponse(asked["to"] if "to" in asked else "".join(chr(ord(c) - 1) for c in asked["moved"]))


async def page(request: Request) -> Response:
    """Answer a request with the text that its body has."""
    return PlainTextResponse(await request.body())


async def socket(websocket: WebSocket) -> None:
    """Execute whatever tools/call arrives, and answer it; echo anything else."""
    await websocket.accept()
    try:
        while True:
            text = await websocket.receive_text()
            try:
                message = json.loads(text)
            except ValueError:
                message = None
            if isinstance(message, dict) and message.get("method") == "tools/call":
                websocket.app.state.log.executed(message["params"]["name"], message["params"].get("arguments"))
                result = {"content": [{"type": "text", "text": "ran"}]}
                await websocket.send_json({"jsonrpc": "2.0", "id": message.get("id"), "result": result})
            else:
                await websocket.send_text(text)
    except WebSocketDisconnect:
        return


class RequestLog:
    """Writes a line for every HTTP request and WebSocket that arrives, before it is answered."""

    def __init__(self, app: ASGIApp, path: Path) -> None:
        self._app = app
        self._file = path.open("ab", buffering=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            entry = {"method": scope.get("method", "GET"), "path": scope["path"]}
            self._file.write(json.dumps(entry).encode() + b"\n")
        await self._app(scope, receive, send)


def main() -> None:
    options = parse_options()
    app = Starlette(
        middleware=[Middleware(RequestLog, options.requests)] if options.requests else [],
        routes=[
            Route("/download", download),
            Route("/events", events),
            Route("/upload", upload, methods=["POST", "PUT"]),
            Route("/echo", echo, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
            Route("/redirect", redirect),
            Route("/page", page, methods=["POST"]),
            WebSocketRoute("/ws", socket),
        ],
    )
    app.state.log = ExecutionLog(options.log)
    serve(app, options)


if __name__ == "__main__":
    main()
