"""A client of the operators' API, on the state folder's socket."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from proxy.admin_api.sockets import connect_unix
from proxy.errors import ReviewError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.core.model import JsonObject
    from proxy.core.proposals import State

TIMEOUT: Final = 30.0


class RemoteReview:
    """A desk behind its API. A no is a ReviewError with the API's own words."""

    def __init__(self, path: Path, token: str, timeout: float = TIMEOUT) -> None:
        self._path = path
        self._token = token
        self._timeout = timeout

    async def list(self, states: Sequence[State], limit: int) -> list[JsonObject]:
        """Return the newest proposals in any of `states`."""
        query = urlencode([*(("state", str(state)) for state in states), ("limit", str(limit))])
        answer = await self._ask("GET", f"/proposals?{query}")
        found: list[JsonObject] = answer["proposals"]
        return found

    async def show(self, proposal_id: str) -> JsonObject:
        """Return one proposal."""
        return await self._ask("GET", _path_of(proposal_id))

    async def approve(self, proposal_id: str, reason: str) -> JsonObject:
        """Approve one proposal."""
        return await self._ask("POST", f"{_path_of(proposal_id)}/approve", {"reason": reason})

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        """Reject one proposal."""
        return await self._ask("POST", f"{_path_of(proposal_id)}/reject", {"reason": reason})

    async def _ask(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        if not (self._token.isascii() and self._token.isprintable()):
            raise ReviewError("operator_auth", "the operator's token holds characters that no token has")
        status, answer = await asyncio.to_thread(self._exchange, method, path, body)
        if status == 200 and isinstance(answer, dict):
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            raise ReviewError("bad_answer", f"the proxy answered {status} with something that is not its own")
        raise ReviewError(str(error.get("reason")), str(error.get("message")))

    def _exchange(self, method: str, path: str, body: JsonObject | None) -> tuple[int, Any]:
        connection = _UnixConnection(self._path, self._timeout)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, _parse(response.read())
        except (OSError, http.client.HTTPException) as error:
            what = "; `interlock proposals show` tells whether it was decided" if method == "POST" else ""
            raise ReviewError("no_answer", f"the proxy does not answer at {self._path} ({error}){what}") from error
        finally:
            connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("operator", timeout=seconds)
        self._unix = (path, seconds)

    def connect(self) -> None:
        self.sock = connect_unix(*self._unix)


def _path_of(proposal_id: str) -> str:
    return f"/proposals/{quote(proposal_id, safe='', errors='replace')}"


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
