"""The admin API's routes: review proposals over HTTP, with JSON bodies.

Every request carries an operator's token. A refusal is `{"error": {"reason": code, "message": sentence}}`.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from proxy.admin_api.auth import ApiError, OperatorAuth, check_role
from proxy.core.approvals import NextCalls, Role
from proxy.core.proposals import State
from proxy.core.rule_proposals import RuleState
from proxy.errors import AuditUnavailableError, ConfigError, ReviewError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from enum import StrEnum

    from starlette.types import ASGIApp, Receive, Scope, Send

    from proxy.admin_api.halts import HaltControl
    from proxy.admin_api.rule_review import RuleReview
    from proxy.core.model import JsonObject
    from proxy.twophase.review import ProposalReview

    type Handler = Callable[[Request], Awaitable[JSONResponse]]

MAX_BODY: Final = 16 << 10
BODY_SECONDS: Final = 10.0
MAX_LISTED: Final = 1000
_NO_STORE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_STATUS: Final = {
    "role_required": 403,
    "own_proposal": 403,
    "not_found": 404,
    "expired": 410,
    **dict.fromkeys(("ambiguous_id", "not_pending", "conflict", "already_approved"), 409),
}
_HTTP_REASONS: Final = {404: "not_found", 405: "method_not_allowed"}


class Api:
    def __init__(
        self, review: ProposalReview, halts: HaltControl | None = None, rules: RuleReview | None = None
    ) -> None:
        self._review = review
        self._halts = halts
        self._rules = rules

    async def list(self, request: Request) -> JSONResponse:
        states = [_state(text, State) for text in request.query_params.getlist("state")]
        return _answer(200, {"proposals": await self._review.list(states, _limit(request))})

    async def show(self, request: Request) -> JSONResponse:
        return _answer(200, await self._review.show(request.path_params["id"]))

    async def approve(self, request: Request) -> JSONResponse:
        decision, operator = await _decision(request, {"reason", "next"}), request.state.operator
        proposal_id, next_calls = request.path_params["id"], _next_calls(decision.get("next"))
        return _answer(200, await self._review.approve(proposal_id, operator, _reason(decision), next_calls))

    async def reject(self, request: Request) -> JSONResponse:
        decision, operator = await _decision(request, {"reason"}), request.state.operator
        return _answer(200, await self._review.reject(request.path_params["id"], operator, _reason(decision)))

    async def list_standing(self, request: Request) -> JSONResponse:
        return _answer(200, {"standing": await self._review.list_standing(_limit(request))})

    async def revoke_standing(self, request: Request) -> JSONResponse:
        decision, operator = await _decision(request, {"reason"}), request.state.operator
        return _answer(200, await self._review.revoke_standing(request.path_params["id"], operator, _reason(decision)))

    async def list_halts(self, _: Request) -> JSONResponse:
        return _answer(200, {"halts": list(self._control().in_force())})

    async def halt(self, request: Request) -> JSONResponse:
        asked = await _decision(request, {"reason", "agent", "server", "tool", "cut"})
        agent, server, tool = (_optional(asked, name) for name in ("agent", "server", "tool"))
        cut = asked.get("cut", False)
        if not isinstance(cut, bool):
            raise ApiError(400, "bad_request", "cut must be true or false")
        operator = request.state.operator
        made = await self._control().halt(operator, _reason(asked), agent=agent, server=server, tool=tool, cut=cut)
        return _answer(200, made)

    async def resume(self, request: Request) -> JSONResponse:
        decision, operator = await _decision(request, {"reason"}), request.state.operator
        ended = await self._control().resume(operator, _reason(decision), [request.path_params["id"]])
        return _answer(200, ended[0])

    async def list_rules(self, request: Request) -> JSONResponse:
        states = [_state(text, RuleState) for text in request.query_params.getlist("state")]
        return _answer(200, {"rules": await self._rule_review().list(states, _limit(request))})

    async def show_rule(self, request: Request) -> JSONResponse:
        return _answer(200, await self._rule_review().show(request.path_params["id"]))

    async def accept_rule(self, request: Request) -> JSONResponse:
        reason = _reason(await _decision(request, {"reason"}))
        return _answer(200, await self._rule_review().accept(request.path_params["id"], request.state.operator, reason))

    async def reject_rule(self, request: Request) -> JSONResponse:
        reason = _reason(await _decision(request, {"reason"}))
        return _answer(200, await self._rule_review().reject(request.path_params["id"], request.state.operator, reason))

    def _rule_review(self) -> RuleReview:
        if self._rules is None:
            raise ApiError(404, "not_found", "no rules can be proposed here")
        return self._rules

    def _control(self) -> HaltControl:
        if self._halts is None:
            raise ApiError(404, "not_found", "nothing can be halted here")
        return self._halts


def routes(api: Api) -> list[tuple[str, str, Role, Handler]]:
    """Return every route: method, path, the least role that may use it, and what it does."""
    return [
        ("GET", "/proposals", Role.VIEWER, api.list),
        ("GET", "/proposals/{id}", Role.VIEWER, api.show),
        ("POST", "/proposals/{id}/approve", Role.APPROVER, api.approve),
        ("POST", "/proposals/{id}/reject", Role.APPROVER, api.reject),
        ("GET", "/standing", Role.VIEWER, api.list_standing),
        ("POST", "/standing/{id}/revoke", Role.APPROVER, api.revoke_standing),
        ("GET", "/rule-proposals", Role.VIEWER, api.list_rules),
        ("GET", "/rule-proposals/{id}", Role.VIEWER, api.show_rule),
        ("POST", "/rule-proposals/{id}/accept", Role.ADMIN, api.accept_rule),
        ("POST", "/rule-proposals/{id}/reject", Role.APPROVER, api.reject_rule),
        ("GET", "/halts", Role.VIEWER, api.list_halts),
        ("POST", "/halts", Role.APPROVER, api.halt),
        ("POST", "/halts/{id}/resume", Role.APPROVER, api.resume),
    ]


def make_app(
    review: ProposalReview, auth: OperatorAuth, halts: HaltControl | None = None, rules: RuleReview | None = None
) -> ASGIApp:
    """Return the application; every request passes `auth` first, and the operator's role is checked for each route."""
    app = Starlette(
        routes=[
            Route(path, _for_role(role, handler), methods=[method])
            for method, path, role, handler in routes(Api(review, halts, rules))
        ],
        exception_handlers=dict.fromkeys(_HANDLED, _refuse),
    )

    # Around the router, not inside: a path that does not exist must not answer before the token is checked.
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the admin API speaks HTTP, not {scope['type']}")
        try:
            scope["state"] = {"operator": await auth.authenticate(scope)}
        except ApiError as error:
            await _error_response(error)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


def _for_role(role: Role, handler: Handler) -> Handler:
    async def checked(request: Request) -> JSONResponse:
        check_role(request.state.operator, role)
        return await handler(request)

    return checked


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    return _error_response(_as_api_error(error))


def _as_api_error(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case ReviewError():
            return ApiError(_STATUS.get(error.code, 400), error.code, str(error))
        case ConfigError():
            return ApiError(503, "halts_unavailable", str(error))
        case StoreUnavailableError():
            return ApiError(503, "store_unavailable", str(error))
        case AuditUnavailableError():
            return ApiError(503, "audit_unavailable", f"{error}; nothing is changed")
        case HTTPException():
            return ApiError(error.status_code, _HTTP_REASONS.get(error.status_code, "bad_request"), error.detail)
        case ClientDisconnect():
            return ApiError(400, "bad_request", "the request ended early")
    # Nothing of the exception itself: its text may hold arguments or paths. The log has it.
    return ApiError(500, "internal_error", "the request failed; see the proxy's log")


_HANDLED: Final = (
    Exception,
    HTTPException,
    ClientDisconnect,
    ApiError,
    ReviewError,
    StoreUnavailableError,
    AuditUnavailableError,
    ConfigError,
)


def _error_response(error: ApiError) -> JSONResponse:
    return _answer(error.status, {"error": {"reason": error.reason, "message": str(error)}})


def _answer(status: int, content: JsonObject) -> JSONResponse:
    headers = _NO_STORE | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
    return JSONResponse(content, status, headers)


def _state[S: StrEnum](text: str, states: type[S]) -> S:
    try:
        return states(text)
    except ValueError:
        raise ApiError(400, "bad_request", f"there is no state {text!r}; states are {', '.join(states)}") from None


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "100")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_LISTED):
        raise ApiError(400, "bad_request", f"limit must be a number from 1 to {MAX_LISTED}, not {text!r}")
    return int(text)


async def _decision(request: Request, known: set[str]) -> JsonObject:
    """Return the object in a request's body; an empty body is an empty one. Raises ApiError for any other form."""
    body = await _body(request)
    try:
        value = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise ApiError(400, "bad_request", "the body is not JSON") from None
    if not isinstance(value, dict) or not value.keys() <= known or not isinstance(value.get("reason", ""), str):
        raise ApiError(400, "bad_request", f'the body must be {{"reason": "…"}}, with {", ".join(sorted(known))} only')
    return value


def _reason(decision: JsonObject) -> str:
    reason: str = decision.get("reason", "")
    return _storable(reason, "the reason")


def _optional(asked: JsonObject, name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(400, "bad_request", f"{name} must be text")
    return None if value is None else _storable(value, name)


def _next_calls(value: Any) -> NextCalls | None:
    """Parse what is approved beside a proposal. Raises ApiError for another form."""
    if value is None:
        return None
    form = 'next must be {"calls": 5, "seconds": 3600, "vary": ["amount"]}; vary may be absent'
    if not isinstance(value, dict) or not {"calls", "seconds"} <= value.keys() <= {"calls", "seconds", "vary"}:
        raise ApiError(400, "bad_request", form)
    calls, seconds, vary = value["calls"], value["seconds"], value.get("vary", [])
    # To Python True is 1: neither is a boolean a number of calls.
    if type(calls) is not int or type(seconds) not in (int, float) or not isinstance(vary, list):
        raise ApiError(400, "bad_request", form)
    if not all(isinstance(name, str) for name in vary):
        raise ApiError(400, "bad_request", form)
    return NextCalls(calls, float(seconds), tuple(_storable(name, "vary") for name in vary))


def _storable(text: str, what: str) -> str:
    try:
        # JSON can contain half a surrogate pair, which cannot be stored as UTF-8.
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(400, "bad_request", f"{what} contains half a surrogate pair") from None
    return text


async def _body(request: Request) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise ApiError(413, "body_too_large", f"the body has more than {MAX_BODY} bytes")
    except TimeoutError:
        raise ApiError(408, "body_too_slow", f"the body did not arrive in {BODY_SECONDS:.0f} s") from None
    return body
