"""Posts batches to a collector by HTTP, and reads its answer: taken, come again, or never.

Certificates are verified, redirects are not followed, and no environment variable leads through a proxy. What an error
says names the address without its query and never a header: both may hold a secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gzip
import ssl
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2

from proxy.errors import ConfigError
from proxy.sinks.role import SinkError
from proxy.system.package_data import version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_ANSWER: Final = 64 << 10
LONGEST_WAIT: Final = 300.0  # seconds that a collector may ask for
# What is wrong with the data itself. Anything else is wrong with the place, the way there or the moment.
REFUSED: Final = (400, 413, 422)
_HINTS: Final = {
    401: "; check `headers`",
    403: "; check `headers`",
    404: "; check the URL, and leave out of `signals` what the collector does not take",
    405: "; check the URL",
}


class RefusedError(SinkError):
    """The collector will never take this batch."""


@dataclass(frozen=True, slots=True)
class Line:
    """How a collector is reached. `headers` may be secret."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 10.0
    compress: bool = True
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class HttpDelivery:
    """One URL of a collector. It connects when it is first written to."""

    def __init__(self, url: str, line: Line) -> None:
        """Raise ConfigError where a file of certificates cannot be used."""
        self._url = url
        self._line = line
        # Without TLS there is nothing to verify, and reading the system's certificates takes a while.
        secure = url.startswith("https:")
        self._verify = tls_context(line.ca, line.certificate, line.key) if secure else False
        self._client: httpx2.AsyncClient | None = None
        self._not_before = 0.0

    async def post(self, body: bytes, content_type: str) -> bytes:
        """Return the collector's answer to a batch that it took.

        Raises RefusedError where it never will, and SinkError where it may later.
        """
        if (wait := self._not_before - time.monotonic()) > 0:
            raise SinkError(f"the collector asked to wait: {wait:.0f} s more")
        headers = {"Content-Type": content_type, "User-Agent": f"mcp-interlock/{version()}", **self._line.headers}
        if self._line.compress:
            body, headers["Content-Encoding"] = gzip.compress(body, 5, mtime=0), "gzip"
        try:
            async with self._open().stream("POST", self._url, content=body, headers=headers) as response:
                answer = await _bounded(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise SinkError(f"{self._shown}: {type(error).__name__}{_why(error)}") from error
        self._judge(response, answer)
        return answer

    async def reach(self) -> None:
        """Return once the collector answers the door: connects, with TLS where there is some. Raises SinkError."""
        parts = urlsplit(self._url)
        secure = isinstance(self._verify, ssl.SSLContext)
        context = self._verify if isinstance(self._verify, ssl.SSLContext) else None
        try:
            async with asyncio.timeout(self._line.timeout):
                _, writer = await asyncio.open_connection(
                    parts.hostname, parts.port or (443 if secure else 80), ssl=context
                )
        except (OSError, TimeoutError) as error:
            raise SinkError(f"{self._shown}: {type(error).__name__}{_why(error)}") from error
        writer.close()

    @property
    def _shown(self) -> str:
        return self._url.partition("?")[0]

    def _judge(self, response: httpx2.Response, answer: bytes) -> None:
        status = response.status_code
        if 200 <= status < 300:
            return
        if status in REFUSED:
            raise RefusedError(f"{self._shown} answered {status}: {_excerpt(answer)}")
        if wait := retry_after(response.headers.get("retry-after")):
            self._not_before = time.monotonic() + wait
        raise SinkError(f"{self._shown} answered {status}{_HINTS.get(status, '')}")

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = httpx2.Limits(max_connections=2, max_keepalive_connections=1)
            self._client = httpx2.AsyncClient(
                verify=self._verify, timeout=self._line.timeout, trust_env=False, limits=limits
            )
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def tls_context(ca: Path | None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return how certificates are verified, and which one is shown. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if certificate is not None:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (ca, certificate, key) if file is not None)
        raise ConfigError(f"{files}: {error.strerror or error}; write PEM files") from error
    return context


def retry_after(text: str | None) -> float:
    """Return the seconds that a Retry-After asks for, bounded; 0 where it says nothing that is understood."""
    if text is None:
        return 0.0
    if text.strip().isdecimal() and text.isascii():
        return min(float(text), LONGEST_WAIT)
    with contextlib.suppress(ValueError, TypeError):
        when = parsedate_to_datetime(text)
        left = (when - dt.datetime.now(dt.UTC if when.tzinfo else None)).total_seconds()
        return min(max(left, 0.0), LONGEST_WAIT)
    return 0.0


async def _bounded(response: httpx2.Response) -> bytes:
    answer = b""
    async for piece in response.aiter_bytes():
        answer += piece[: MAX_ANSWER - len(answer)]
        if len(answer) >= MAX_ANSWER:
            break
    return answer


def _why(error: Exception) -> str:
    text = str(error)
    return f" ({text[:200]})" if text else ""


def _excerpt(answer: bytes) -> str:
    text = answer[:200].decode("utf-8", "replace")
    return "".join(sign if sign.isprintable() else "?" for sign in text) or "nothing more"
