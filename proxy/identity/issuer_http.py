"""Asks issuers of tokens, and clusters, over HTTP: one answer of JSON, bounded in time and size, and no redirects."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ASK_SECONDS: Final = 5.0
MAX_ANSWER: Final = 1 << 20
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class UnreachableError(Exception):
    """The other side cannot be asked now."""


class UnreadableAnswerError(Exception):
    """The other side answered with something that is of no use."""


def check_url(value: str) -> str:
    """Return a URL that may be asked. Raises ValueError for one without TLS, except of this machine."""
    parts = urlsplit(value)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not parts.hostname or parts.username is not None or parts.fragment or not safe or not value.isprintable():
        raise ValueError("write an https:// URL without a user name; http:// is for this machine alone")
    return value


def check_issuer(value: str) -> str:
    """Return the URL of an issuer. Raises ValueError for one that cannot be an issuer's."""
    if "?" in value:
        raise ValueError("an issuer has no query")
    return check_url(value)


async def ask_json(
    address: str,
    method: str = "GET",
    *,
    form: Mapping[str, str] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    seconds: float | None = None,
) -> tuple[int, Any]:
    """Return the status and, where that is one of success, the JSON. Raises UnreachableError, UnreadableAnswerError."""
    import httpx2  # noqa: PLC0415  large, and for those who use it alone

    received, limit = b"", ASK_SECONDS if seconds is None else seconds
    fields = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    try:
        # Reading the roots takes tens of milliseconds: not on the event loop. No redirects: one could take what is
        # sent elsewhere.
        trust = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
        async with (
            asyncio.timeout(limit),
            httpx2.AsyncClient(verify=trust, follow_redirects=False, trust_env=False, timeout=limit) as client,
            client.stream(method, address, data=form, json=body, headers=fields) as response,
        ):
            async for chunk in response.aiter_bytes():
                received += chunk
                if len(received) > MAX_ANSWER:
                    raise UnreadableAnswerError("the issuer's answer is too large")
        return response.status_code, json.loads(received) if response.status_code in (200, 201) else None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
        raise UnreachableError("the issuer cannot be reached") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswerError("the issuer's answer cannot be read") from error
