"""Asks services about calls: over connections that stay open, a bounded number at a time, and never for long."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.core.external import ExternalAnswer
from proxy.external import shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import httpx2

    from proxy.core.external import Ask, Asked
    from proxy.external.settings import ExternalSettings, Service

log = structlog.get_logger("interlock.external")

MAX_ANSWER: Final = 64 << 10
MAX_CACHED: Final = 1024
UNAVAILABLE: Final = "external_unavailable"
TIMEOUT: Final = "external_timeout"


class Services:
    """The services of the settings; implements `ExternalDecisions`."""

    def __init__(self, settings: ExternalSettings | None, clock: Callable[[], float] = time.monotonic) -> None:
        made = settings.services if settings is not None else ()
        self._clients = {service.name: ServiceClient(service, clock) for service in made}

    @property
    def names(self) -> frozenset[str]:
        """The names that rules may use."""
        return frozenset(self._clients)

    async def ask(self, asks: Sequence[Ask], asked: Asked) -> Mapping[Ask, ExternalAnswer]:
        """Return an answer for each; one that cannot be had is a refusal. Never raises."""
        answers = await asyncio.gather(*(self._ask(ask, asked) for ask in asks))
        return dict(zip(asks, answers, strict=True))

    async def _ask(self, ask: Ask, asked: Asked) -> ExternalAnswer:
        client = self._clients.get(ask.service)
        if client is None:
            return ExternalAnswer(UNAVAILABLE, f"the settings have no service {ask.service!r}")
        try:
            return await client.ask(ask, asked)
        except Exception as error:
            log.exception("a service could not be asked", service=ask.service, error=str(error))
            return ExternalAnswer(UNAVAILABLE, "it could not be asked")

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()


class ServiceClient:
    """Asks one service."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._body, self._read = (
            (shapes.opa_body, shapes.read_opa) if service.type == "opa" else (shapes.cedar_body, shapes.read_cedar)
        )
        self._turns = asyncio.Semaphore(service.concurrency)
        self._cached: OrderedDict[bytes, tuple[ExternalAnswer, float]] = OrderedDict()
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, ask: Ask, asked: Asked) -> ExternalAnswer:
        """Return the answer, or why there is none."""
        body = json.dumps(self._body(shapes.question(ask, asked)), separators=(",", ":")).encode()
        # The whole question, so that an answer is never used for another one.
        key, began = hashlib.sha256(body).digest(), self._clock()
        if (known := self._known(key, began)) is not None:
            return ExternalAnswer(known.reason, known.detail, cached=True)
        reason, said = await self._exchange(body)
        answer = ExternalAnswer(reason, said, self._clock() - began)
        if reason in (None, shapes.DENIED) and self._service.cache_seconds:
            self._cached[key] = answer, began
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
        return answer

    def _known(self, key: bytes, now: float) -> ExternalAnswer | None:
        found = self._cached.get(key)
        return found[0] if found is not None and now - found[1] < self._service.cache_seconds else None

    async def _exchange(self, body: bytes) -> shapes.Read:
        import httpx2  # noqa: PLC0415  large, and for those who use it alone

        try:
            # Waiting for a turn counts: a call never waits for longer than the settings say.
            async with asyncio.timeout(self._service.timeout_seconds), self._turns:
                return await self._post(body)
        except (TimeoutError, httpx2.TimeoutException):
            return TIMEOUT, f"{self._service.name} did not answer in {self._service.timeout_seconds:g} s"
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
            log.warning("a service cannot be asked", service=self._service.name, error=repr(error))
            return UNAVAILABLE, f"{self._service.name} cannot be asked"

    async def _post(self, body: bytes) -> shapes.Read:
        client = await self._open()
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if self._service.token_file is not None:
            token = await asyncio.to_thread(self._service.token_file.read_text)
            headers["Authorization"] = f"Bearer {token.strip()}"
        received = b""
        async with client.stream("POST", self._service.url, content=body, headers=headers) as response:
            if response.status_code != 200:
                odd = response.is_redirect or response.status_code < 300
                return (shapes.ODD if odd else UNAVAILABLE), f"it answered with status {response.status_code}"
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                return shapes.ODD, "the answer is compressed, and was not asked to be"
            async for chunk in response.aiter_raw():
                received += chunk
                if len(received) > MAX_ANSWER:
                    return shapes.ODD, f"the answer has more than {MAX_ANSWER} bytes"
        return self._parse(received)

    def _parse(self, received: bytes) -> shapes.Read:
        try:
            answer = json.loads(received.decode(), object_pairs_hook=_no_twice)
        except (ValueError, RecursionError):
            return shapes.ODD, "the answer is not JSON in its one form"
        return self._read(answer)

    async def _open(self) -> httpx2.AsyncClient:
        import httpx2  # noqa: PLC0415  as above

        if self._client is None:
            trust = await asyncio.to_thread(ssl.create_default_context, cafile=self._service.ca_file)
            most = self._service.concurrency
            limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
            # Two first questions may both come here; the loser's client has no connection to close.
            self._client = self._client or httpx2.AsyncClient(
                verify=trust, follow_redirects=False, trust_env=False, limits=limits, timeout=None
            )
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found
