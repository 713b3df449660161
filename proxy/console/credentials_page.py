"""Credentials by reference: where they may go, whether their values can be had, when they were used; revoking one."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.console.context import NavEntry, action, view
from proxy.console.login_page import see_other
from proxy.console.security import RefusedError
from proxy.core.approvals import Role
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError, ConfigError
from proxy.fleet.open_state import using_vault
from proxy.vault.placeholder import shortened
from proxy.vault.source_files import exposure
from proxy.vault.source_states import source_states
from proxy.vault.vault_file import Document, EnvSource, FileSource, VaultFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.console.context import Console
    from proxy.vault.vault_file import Entry

log = structlog.get_logger("interlock.console")

AMONG: Final = 5000
"""The newest events among which uses are counted."""
MAX_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Row:
    """A credential as the page shows it."""

    name: str
    entry: Entry
    short: str
    problem: str | None
    warning: str | None
    uses: int
    last: float | None


class CredentialsPage:
    nav: NavEntry | None = NavEntry("/credentials", "Credentials", "c")

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [
            view("/credentials", self.list),
            action("/credentials/revoke", self.revoke, Role.ADMIN),
        ]

    async def list(self, request: Request) -> Response:
        document, problem = await asyncio.to_thread(self._read)
        async with self._console.trail.open() as reader:
            used = count_uses(await reader.last(AMONG)) if document.credentials else {}
        rows = await asyncio.to_thread(_rows, document, used)
        values: dict[str, Any] = {
            "rows": rows[:MAX_SHOWN],
            "more": max(0, len(rows) - MAX_SHOWN),
            "revoked": sorted(document.revoked, key=lambda stone: -stone.revoked)[:MAX_SHOWN],
            "among": AMONG,
            "problem": problem,
            "said": request.query_params.get("revoked", ""),
        }
        return self._console.renderer.page(request, "credentials.html", values)

    async def revoke(self, request: Request, form: Mapping[str, str]) -> Response:
        name, placeholder = form.get("name", ""), form.get("placeholder", "")
        try:
            await asyncio.to_thread(self._revoke, name, placeholder)
        except ConfigError as error:
            raise RefusedError(503, "vault_unavailable", f"Nothing was revoked: {error}") from None
        # What stops something does so first, and is recorded then.
        detail = {"operator": request.state.me.operator, "via": "console", "credential": name}
        event = AuditEvent(event_id=new_id(), kind="credential_removed", time=time.time(), detail=detail)
        try:
            await self._console.sink.record(event)
        except AuditUnavailableError as error:
            log.exception("a credential was revoked, which could not be recorded", credential=name, error=str(error))
        return see_other(f"/credentials?revoked={name}")

    def _revoke(self, name: str, placeholder: str) -> None:
        document, problem = self._read()
        if problem is not None:
            raise ConfigError(problem)
        known = document.credentials.get(name)
        # By its placeholder, too: one that was added under this name since the page was made is another.
        if known is None or known.placeholder != placeholder:
            raise RefusedError(409, "credential_changed", "The credential is not what this page showed. Look again.")
        with using_vault(self._console.settings) as file:
            file.revoke(name)

    def _read(self) -> tuple[Document, str | None]:
        """Return the credentials; none and why, where they cannot be read."""
        try:
            return VaultFile(self._console.trail.state_dir).read(), None
        except ConfigError as error:
            return Document(), str(error)


def count_uses(events: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, float]]:
    """Return how often each credential was put in, and when last."""
    found: dict[str, tuple[int, float]] = {}
    for event in events:
        detail = event.get("detail")
        names = detail.get("credentials") if isinstance(detail, dict) and event.get("decision") != "deny" else None
        for name in names if isinstance(names, list) else []:
            number, last = found.get(str(name), (0, 0.0))
            found[str(name)] = number + 1, max(last, float(event.get("time") or 0.0))
    return found


def _rows(document: Document, used: Mapping[str, tuple[int, float]]) -> list[Row]:
    files = {name: entry for name, entry in document.credentials.items() if isinstance(entry.source, FileSource)}
    problems = source_states(files, {})
    # The console runs in the proxy's environment. Commands are not run for a page.
    for name, entry in document.credentials.items():
        if isinstance(entry.source, EnvSource) and entry.source.variable not in os.environ:
            problems[name] = f"the variable {entry.source.variable} is not set"
    return [
        Row(name, entry, shortened(entry.placeholder), problems.get(name), _warning(entry), *used.get(name, (0, None)))
        for name, entry in sorted(document.credentials.items())
    ]


def _warning(entry: Entry) -> str | None:
    open_to = exposure(entry.source.path) if isinstance(entry.source, FileSource) else None
    return open_to[0] if open_to is not None else None
