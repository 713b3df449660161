"""How commands reach the desk: through the proxy that runs on the state folder, or at the store itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from proxy.admin_api.client import RemoteReview
from proxy.audit.local_log_files import DaemonLog
from proxy.config import OPERATOR_TOKEN_ENV, Settings
from proxy.core.model import JsonObject
from proxy.core.proposals import State
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens, read_token
from proxy.store.open_store import open_store
from proxy.system import run_file
from proxy.twophase.review import ProposalReview


class Review(Protocol):
    """What an operator may do."""

    async def list(self, states: Sequence[State], limit: int) -> list[JsonObject]:
        """Return the newest proposals in any of `states`."""
        ...

    async def show(self, proposal_id: str) -> JsonObject:
        """Return one proposal."""
        ...

    async def approve(self, proposal_id: str, reason: str) -> JsonObject:
        """Approve one proposal."""
        ...

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        """Reject one proposal."""
        ...


class OwnReview:
    """A desk of this process, for one operator."""

    def __init__(self, desk: ProposalReview, operator: str) -> None:
        self.list = desk.list
        self.show = desk.show
        self._desk = desk
        self._operator = operator

    async def approve(self, proposal_id: str, reason: str) -> JsonObject:
        """Approve one proposal."""
        return await self._desk.approve(proposal_id, self._operator, reason)

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        """Reject one proposal."""
        return await self._desk.reject(proposal_id, self._operator, reason)


def find_token(state_dir: Path, token_file: Path | None) -> str:
    """Return the operator's token: from the file named, else the environment, else the first operator's file.

    Raises ConfigError where there is none.
    """
    if token_file is not None:
        return read_token(token_file)
    if token := os.environ.get(OPERATOR_TOKEN_ENV):
        return token.strip()
    own = OperatorTokens(state_dir).token_file
    if not own.exists():
        raise ConfigError(
            f"an operator's token is needed, and {own} is not there; give --token-file or {OPERATOR_TOKEN_ENV}, "
            "or make one with `interlock operators add NAME`"
        )
    return read_token(own)


@contextlib.asynccontextmanager
async def open_review(settings: Settings, token: str) -> AsyncIterator[Review]:
    """Return the desk for as long as the block lasts.

    Raises ConfigError where the token is no operator's.
    """
    running = run_file.read(settings.state_dir)
    if running is not None and running.operator_socket is not None:
        yield RemoteReview(Path(running.operator_socket), token)
        return
    operator = OperatorTokens(settings.state_dir).holder(token)
    if operator is None:
        raise ConfigError("the token is no operator's of this state folder; see `interlock operators list`")
    store = open_store(settings.postgres, settings.state_dir)
    with contextlib.closing(DaemonLog(settings.state_dir, max_bytes=settings.audit_log_limit)) as sink:
        try:
            yield OwnReview(ProposalReview(store, sink, time.time), operator)
        finally:
            await store.close()
