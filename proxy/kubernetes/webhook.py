"""Serves the injector over HTTPS: POST /mutate and /validate for the API server, GET /healthz for the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.kubernetes.admission import ReviewError, mutate, validate

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from starlette.requests import Request

    from proxy.kubernetes.injection import Injection, Manifest

log = structlog.get_logger("interlock.injector")

MAX_BODY: Final = 8 << 20  # the API server's own bound on an object is 1.5 MiB, and a review may hold it twice
MAX_CONNECTIONS: Final = 256
KEEP_ALIVE_SECONDS: Final = 30
RELOAD_SECONDS: Final = 10.0


def make_app(injection: Callable[[], Injection]) -> Starlette:
    """Return the application; `injection` gives what is in force now."""
    return Starlette(
        routes=[
            Route("/mutate", _reviewer(mutate, injection), methods=["POST"]),
            Route("/validate", _reviewer(validate, injection), methods=["POST"]),
            Route("/healthz", _alive),
        ]
    )


def _reviewer(review: Callable[[Any, Injection], Manifest], injection: Callable[[], Injection]) -> Callable[..., Any]:
    async def answer(request: Request) -> Response:
        # An answer other than 200 is a refusal, as the webhook's failurePolicy says.
        try:
            body = await _body(request)
            answered = review(orjson.loads(body), injection())
        except (ReviewError, orjson.JSONDecodeError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        response = answered["response"]
        log.info("reviewed", way=review.__name__, uid=response["uid"], allowed=response["allowed"])
        return JSONResponse(answered)

    return answer


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise ReviewError(f"the review is larger than {MAX_BODY >> 20} MiB")
    return bytes(body)


async def _alive(request: Request) -> Response:  # noqa: ARG001  starlette's signature
    return PlainTextResponse("ok\n")


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


async def serve(listener: socket.socket, certificate: Path, key: Path, injection: Callable[[], Injection]) -> None:
    """Serve on `listener` until SIGTERM or SIGINT. A renewed certificate is taken up while it runs."""
    config = uvicorn.Config(
        make_app(injection),
        http=H11Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    config.load()
    assert config.ssl is not None
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, setattr, server, "should_exit", True)
    renewing = asyncio.create_task(_renew(config.ssl, certificate, key))
    try:
        await server.serve([listener])
    finally:
        renewing.cancel()


async def _renew(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load the files again when they change: Kubernetes replaces those of a mounted secret."""
    loaded = _stamp(certificate, key)
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        with contextlib.suppress(OSError):
            if (now := _stamp(certificate, key)) != loaded:
                try:
                    context.load_cert_chain(certificate, key)
                except ssl.SSLError as error:
                    log.warning("certificate_unusable", file=str(certificate), error=str(error))
                else:
                    log.info("certificate_renewed", file=str(certificate))
                loaded = now


def _stamp(*files: Path) -> list[tuple[int, int]]:
    return [(seen.st_mtime_ns, seen.st_ino) for seen in (file.stat() for file in files)]
