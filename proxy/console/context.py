"""What the console's pages share, and how their routes are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from starlette.routing import Route

from proxy.console.security import RefusedError, check_csrf, read_form
from proxy.core.approvals import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from proxy.admin_api.halts import HaltControl
    from proxy.admin_api.rule_review import RuleReview
    from proxy.config import Settings
    from proxy.console.door import Door
    from proxy.console.links import OneTimeLinks
    from proxy.console.live_feed import LiveFeed
    from proxy.console.oidc import OidcClient
    from proxy.console.operators import Operators
    from proxy.console.passkeys import Passkeys
    from proxy.console.render import Renderer
    from proxy.console.security import Site
    from proxy.console.sessions import Sessions
    from proxy.console.trail import Trail
    from proxy.core.approvals import Operator
    from proxy.core.interfaces import EventSink
    from proxy.policy.reloader import LivePolicy
    from proxy.store.pin_files import PinFiles
    from proxy.twophase.review import ProposalReview


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Everything that pages need."""

    site: Site
    operators: Operators
    sessions: Sessions
    links: OneTimeLinks
    door: Door
    passkeys: Passkeys
    oidc: OidcClient | None
    trail: Trail
    feed: LiveFeed
    renderer: Renderer
    review: ProposalReview
    rules: RuleReview
    halts: HaltControl
    policy: LivePolicy
    policy_path: Path
    sink: EventSink
    settings: Settings
    pins: PinFiles


@dataclass(frozen=True, slots=True)
class Me:
    """Who looks at a page, and the token that must come with every form of it."""

    person: Operator
    csrf: str

    @property
    def operator(self) -> str:
        return self.person.name

    @property
    def role(self) -> Role:
        return self.person.role

    @property
    def approves(self) -> bool:
        return self.role.includes(Role.APPROVER)

    @property
    def administers(self) -> bool:
        return self.role.includes(Role.ADMIN)


@dataclass(frozen=True, slots=True)
class NavEntry:
    """A page's place in the navigation; `key` is the letter behind `g` that goes there."""

    path: str
    label: str
    key: str


class Page(Protocol):
    """One part of the console: its place in the navigation, if it has one, and its routes."""

    nav: NavEntry | None

    def routes(self) -> list[Route]: ...


def view(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return the route of a page that any operator may look at."""
    return Route(path, handler, methods=["GET"])


def action(path: str, handler: Callable[[Request, Mapping[str, str]], Awaitable[Response]], role: Role) -> Route:
    """Return the route of a form that an operator with `role` may send; the handler gets its fields."""

    async def act(request: Request) -> Response:
        form = await read_form(request)
        check_csrf(request, request.state.session, form)
        me: Me = request.state.me
        if not me.role.includes(role):
            raise RefusedError(403, "role_required", f"This needs the role {role}; yours is {me.role}.")
        return await handler(request, form)

    return Route(path, act, methods=["POST"])
