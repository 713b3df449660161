"""A client of the admin API, over the unix socket in the state folder."""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from proxy.admin_api.sockets import connect_unix
from proxy.errors import ReviewError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.core.approvals import NextCalls
    from proxy.core.model import JsonObject
    from proxy.core.proposals import State
    from proxy.core.rule_proposals import RuleState

TIMEOUT: Final = 30.0


class AdminClient:
    """Speaks to the admin API. A refusal raises ReviewError with the API's code and message."""

    check_with = "interlock proposals show"  # says whether something whose answer was lost was done

    def __init__(self, path: Path, token: str, timeout: float = TIMEOUT) -> None:
        self._path = path
        self._token = token
        self._timeout = timeout

    async def _request(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        # Before the request is built: a line break in a token would start a header of its own.
        if not (self._token.isascii() and self._token.isprintable()):
            raise ReviewError("operator_auth", "the operator's token contains characters that no token has")
        status, answer = await asyncio.to_thread(self._exchange, method, path, body)
        if status == 200 and isinstance(answer, dict):
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            raise ReviewError("bad_answer", f"the proxy answered {status} with an unknown body")
        raise ReviewError(str(error.get("reason")), str(error.get("message")))

    def _exchange(self, method: str, path: str, body: JsonObject | None) -> tuple[int, Any]:
        connection = _UnixConnection(self._path, self._timeout)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, _parse(response.read())
        except (OSError, http.client.HTTPException) as error:
            what = f"; check with `{self.check_with}` whether it was done" if method == "POST" else ""
            raise ReviewError("no_answer", f"the proxy does not answer at {self._path} ({error}){what}") from error
        finally:
            connection.close()


class RemoteReview(AdminClient):
    """ProposalReview over the admin API."""

    async def list(self, states: Sequence[State], limit: int) -> list[JsonObject]:
        query = urlencode([*(("state", str(state)) for state in states), ("limit", str(limit))])
        answer = await self._request("GET", f"/proposals?{query}")
        found: list[JsonObject] = answer["proposals"]
        return found

    async def show(self, proposal_id: str) -> JsonObject:
        return await self._request("GET", _path_of(proposal_id))

    async def approve(self, proposal_id: str, reason: str, next_calls: NextCalls | None = None) -> JsonObject:
        body: JsonObject = {"reason": reason}
        if next_calls is not None:
            body["next"] = asdict(next_calls)
        return await self._request("POST", f"{_path_of(proposal_id)}/approve", body)

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        return await self._request("POST", f"{_path_of(proposal_id)}/reject", {"reason": reason})

    async def list_standing(self, limit: int) -> Sequence[JsonObject]:
        answer = await self._request("GET", f"/standing?limit={limit}")
        found: Sequence[JsonObject] = answer["standing"]
        return found

    async def revoke_standing(self, standing_id: str, reason: str) -> JsonObject:
        return await self._request("POST", f"{_path_of(standing_id, 'standing')}/revoke", {"reason": reason})


class RemoteHalts(AdminClient):
    """HaltControl over the admin API."""

    check_with = "interlock halts"

    async def in_force(self) -> Sequence[JsonObject]:
        answer = await self._request("GET", "/halts")
        found: Sequence[JsonObject] = answer["halts"]
        return found

    async def halt(
        self, reason: str, *, agent: str | None, server: str | None, tool: str | None, cut: bool
    ) -> JsonObject:
        scope = {"agent": agent, "server": server, "tool": tool}
        named = {name: value for name, value in scope.items() if value is not None}
        return await self._request("POST", "/halts", {"reason": reason, "cut": cut, **named})

    async def resume(self, reason: str, halt_ids: Sequence[str]) -> Sequence[JsonObject]:
        return [await self._request("POST", f"{_path_of(one, 'halts')}/resume", {"reason": reason}) for one in halt_ids]


class RemoteRules(AdminClient):
    """RuleReview over the admin API."""

    check_with = "interlock policy proposals show"

    async def list(self, states: Sequence[RuleState], limit: int) -> list[JsonObject]:
        query = urlencode([*(("state", str(state)) for state in states), ("limit", str(limit))])
        answer = await self._request("GET", f"/rule-proposals?{query}")
        found: list[JsonObject] = answer["rules"]
        return found

    async def show(self, proposal_id: str) -> JsonObject:
        return await self._request("GET", _path_of(proposal_id, "rule-proposals"))

    async def accept(self, proposal_id: str, reason: str) -> JsonObject:
        return await self._request("POST", f"{_path_of(proposal_id, 'rule-proposals')}/accept", {"reason": reason})

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        return await self._request("POST", f"{_path_of(proposal_id, 'rule-proposals')}/reject", {"reason": reason})


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("operator", timeout=seconds)
        self._unix = (path, seconds)

    def connect(self) -> None:
        self.sock = connect_unix(*self._unix)


def _path_of(name: str, kind: str = "proposals") -> str:
    return f"/{kind}/{quote(name, safe='', errors='replace')}"


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
