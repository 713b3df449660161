"""The console's application in this process, with a real store, and a client that behaves as a browser does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from proxy.config import Settings
from proxy.console.app import ConsoleApp
from proxy.console.context import Console
from proxy.console.security import split_place
from proxy.console.server import build
from proxy.console.sessions import PLACE
from proxy.core.model import AuditEvent
from proxy.identity.token_file import OperatorTokens
from proxy.policy.reloader import LivePolicy
from proxy.redact import builtin

URL = "http://127.0.0.1:8090"
POLICY = """\
version: 1
default: allow
rules:
  - id: no-danger
    action: deny
    tools: [danger]
  - id: no-system-files
    action: deny
    tools: [read_file]
    when: {any: [{arg: path, path_under: [/etc]}]}
"""


@dataclass
class Sink:
    """Keeps what is recorded; `fail` makes recording impossible."""

    events: list[AuditEvent] = field(default_factory=list)
    fail: Exception | None = None

    async def record(self, event: AuditEvent) -> None:
        if self.fail is not None:
            raise self.fail
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@dataclass
class Desk:
    """A console, its application, and a browser that is not logged in yet."""

    console: Console
    app: ConsoleApp
    tokens: OperatorTokens
    sink: Sink
    http: httpx2.AsyncClient

    async def log_in(self, operator: str = "ann") -> httpx2.Response:
        """Log in by a one-time link, as an operator who is added where there is none of that name."""
        if operator not in self.tokens.names():
            self.tokens.add(operator)
        secret = self.console.links.make(operator)
        answer = await self.http.post("/login", data={"link": secret})
        assert answer.status_code == 303, answer.text
        return answer

    async def csrf(self, path: str = "/calls") -> str:
        """Return the token of the session, as a page has it."""
        found = re.search(r'name="csrf-token" content="([^"]+)"', (await self.http.get(path)).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, **fields: Any) -> httpx2.Response:
        """Send a form as a page of the console does."""
        return await self.http.post(path, data={"csrf": await self.csrf(), **fields})


class Inside(httpx2.AsyncBaseTransport):
    """Goes from a path to the same one of the session that is open, as the login page does; hides that in answers."""

    http: httpx2.AsyncClient

    def __init__(self, app: httpx2.ASGITransport) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        places = [one.path.rstrip("/") for one in self.http.cookies.jar if one.path.startswith(PLACE)]
        if places and not request.url.path.startswith(("/login", "/static", PLACE)):
            request.url = request.url.copy_with(raw_path=places[-1].encode() + request.url.raw_path)
            if "interlock-8090=" not in request.headers.get("cookie", ""):  # a test may send one of its own
                request.headers.pop("cookie", None)
                self.http.cookies.set_cookie_header(request)
        answer = await self._app.handle_async_request(request)
        if "location" in answer.headers:
            answer.headers["location"] = split_place(answer.headers["location"])[1]
        return answer


@contextlib.asynccontextmanager
async def open_desk(folder: Path, policy: str = POLICY, **settings: Any) -> AsyncIterator[Desk]:
    (folder / "policy.yaml").write_text(policy)
    made = Settings(state_dir=folder / "state", policy=folder / "policy.yaml", **settings)
    made.state_dir.mkdir(mode=0o700, exist_ok=True)
    sink = Sink()
    async with contextlib.AsyncExitStack() as closing:
        console, assets = build(made, 8090, LivePolicy(made.policy, book=builtin()), sink, closing)
        app = ConsoleApp(console, assets)
        inside = Inside(httpx2.ASGITransport(app, raise_app_exceptions=False))
        http = inside.http = await closing.enter_async_context(
            httpx2.AsyncClient(
                transport=inside,
                base_url=URL,
                headers={"accept": "text/html", "origin": URL},
                trust_env=False,
            )
        )
        yield Desk(console, app, OperatorTokens(made.state_dir), sink, http)
