"""A web server that notes what arrives, and sends values back in whatever form it is asked for."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.servers.common import ExecutionLog, parse_options, serve

FORMS: dict[str, Callable[[str], bytes]] = {
    "raw": str.encode,
    "json": lambda text: json.dumps({"value": text}).encode(),
    "json in json": lambda text: json.dumps({"value": json.dumps({"value": text})}).encode(),
    "escapes": lambda text: "".join(
        f"\\u{ord(char):04X}" if i % 2 else f"\\u{ord(char):04x}" for i, char in enumerate(text)
    ).encode(),
    "percent": lambda text: quote(text, safe="").encode(),
    "percent of all": lambda text: "".join(f"%{ord(char):02x}" for char in text).encode(),
    "percent twice": lambda text: quote(quote(text, safe=""), safe="").encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64 of a login": lambda text: base64.b64encode(f"u:{text}".encode()),
    "base64 inside": lambda text: base64.b64encode(f"ab{text}yz".encode()),
    "base64 of URLs": lambda text: base64.urlsafe_b64encode(f"a{text}".encode()),
    "base64 in lines": lambda text: base64.encodebytes(b"a" * 50 + text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
    "HEX": lambda text: text.encode().hex().upper().encode(),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text).encode(),
    "html": lambda text: html.escape(text).encode(),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-32-be": lambda text: text.encode("utf-32-be"),
}
"""How a text is written, by the name of the form."""


def note(request: Request | WebSocket, body: bytes) -> dict[str, Any]:
    """Write down what arrived, and return it."""
    scope = request.scope
    seen = {
        "path": scope["raw_path"].decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": body.decode("latin-1"),
    }
    request.app.state.log.executed("request", seen)
    return seen


async def see(request: Request) -> Response:
    return JSONResponse(note(request, await request.body()))


async def keep(request: Request) -> Response:
    """Keep what a header brings, to send it back later."""
    note(request, b"")
    request.app.state.kept = request.headers["authorization"].removeprefix("Bearer ")
    return Response(status_code=204)


async def again(request: Request) -> Response:
    """Send back what was kept."""
    asked, kept = request.query_params, request.app.state.kept
    data = b"before " + FORMS[asked.get("form", "raw")](kept) + b" after"
    headers = {"content-type": asked.get("type", "text/plain")}
    match asked.get("how", "whole"):
        case "gzip":
            return Response(gzip.compress(data), headers={**headers, "content-encoding": "gzip"})
        case "unknown coding":
            return Response(data, headers={**headers, "content-encoding": "rot13"})
        case "chunks":
            return StreamingResponse(_pieces(data, int(asked.get("size", "1"))), headers=headers)
        case "gzip in chunks":
            coded = {**headers, "content-encoding": "gzip"}
            return StreamingResponse(_pieces(gzip.compress(data), 3), headers=coded)
        case "headers":
            more = {"location": f"https://site.test/{quote(kept)}?{quote(kept)}", "etag": f'"{kept}"', "x-key": kept}
            return Response(data, 302, headers={**headers, **more})
        case "error":
            return Response(data, int(asked["status"]), headers=headers)
        case "part":
            return Response(data, 206, headers={**headers, "content-range": f"bytes 0-{len(data) - 1}/{len(data)}"})
        case _:
            return Response(data, headers=headers)


async def _pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def ranged(request: Request) -> Response:
    """Send back the part of what was kept that a Range asks for."""
    kept, asked = request.app.state.kept.encode(), request.headers.get("range")
    if asked is None:
        return Response(kept)
    first, last = map(int, asked.removeprefix("bytes=").split("-"))
    part = kept[first : last + 1]
    return Response(part, 206, headers={"content-range": f"bytes {first}-{first + len(part) - 1}/{len(kept)}"})


async def socket(websocket: WebSocket) -> None:
    """Note the handshake and every message, and send both back."""
    seen = note(websocket, b"")
    await websocket.accept(headers=[(b"x-authorization", websocket.headers.get("authorization", "").encode())])
    await websocket.send_json(seen)
    try:
        while True:
            text = await websocket.receive_text()
            websocket.app.state.log.executed("message", {"text": text})
            await websocket.send_text(text)
    except WebSocketDisconnect:
        return


def main() -> None:
    options = parse_options()
    methods = ["GET", "POST", "PUT", "DELETE", "PATCH"]
    app = Starlette(
        routes=[
            Route("/keep", keep, methods=methods),
            Route("/again", again, methods=methods),
            Route("/ranged", ranged),
            WebSocketRoute("/ws", socket),
            Route("/{rest:path}", see, methods=methods),
        ]
    )
    app.state.log = ExecutionLog(options.log)
    serve(app, options)


if __name__ == "__main__":
    main()
