"""Posts entries to a transparency log that speaks Rekor's API, version 1. Blocks: for a thread of its own.

Redirects are not followed, and no environment variable leads elsewhere. What comes back is checked by the caller.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from proxy.errors import InterlockError

TIMEOUT: Final = 10.0
MAX_ANSWER: Final = 1 << 20
ENTRIES: Final = "/api/v1/log/entries"


class LogAwayError(InterlockError):
    """The log did not take an entry, or did not answer."""


class RekorClient:
    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        self.url = url
        self._parts = urlsplit(url)
        self._timeout = timeout

    def post(self, proposed: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the entry that the log made, or had already, with its id and its proof. Raises LogAwayError."""
        status, location, data = self._ask("POST", ENTRIES, json.dumps(proposed).encode())
        if status == http.HTTPStatus.CONFLICT and (known := location.rpartition("/")[2]).isalnum():
            status, _, data = self._ask("GET", f"{ENTRIES}/{known}")
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.CREATED):
            raise LogAwayError(f"{self.url} answered {status}: {_reason(data)}")
        return _only_entry(data)

    def size(self) -> int:
        """Return how many entries the log has. Raises LogAwayError."""
        status, _, data = self._ask("GET", "/api/v1/log")
        if status != http.HTTPStatus.OK:
            raise LogAwayError(f"{self.url} answered {status}: {_reason(data)}")
        return int(_parse(data)["treeSize"])

    def public_key(self) -> bytes:
        """Return the key that the log says it signs with. Raises LogAwayError."""
        status, _, data = self._ask("GET", "/api/v1/log/publicKey")
        if status != http.HTTPStatus.OK:
            raise LogAwayError(f"{self.url} answered {status}: {_reason(data)}")
        return data

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str, bytes]:
        try:
            connection = self._connection()
            try:
                headers = {"Content-Type": "application/json", "Accept": "application/json, application/x-pem-file"}
                connection.request(method, f"{self._parts.path.rstrip('/')}{path}", body, headers)
                response = connection.getresponse()
                data = response.read(MAX_ANSWER)
                return response.status, response.headers.get("Location", ""), data
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise LogAwayError(f"{self.url} does not answer ({error or type(error).__name__})") from error

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)


def _only_entry(data: bytes) -> tuple[str, dict[str, Any]]:
    found = _parse(data)
    if len(found) != 1 or not isinstance(entry := next(iter(found.values())), dict):
        raise LogAwayError("the log answered with something else than one entry")
    return next(iter(found)), entry


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LogAwayError("the log answered with something else than JSON") from error
    if not isinstance(found, dict):
        raise LogAwayError("the log answered with something else than an object")
    return found


def _reason(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])[:200]
    except (ValueError, TypeError, LookupError, RecursionError):
        return "no reason given"
