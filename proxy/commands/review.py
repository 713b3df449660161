"""Opens a review of proposals: through the running proxy's admin API, or on the store itself if no proxy runs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from proxy.admin_api.client import RemoteReview
from proxy.audit.restored import open_daemon_log
from proxy.config import Settings
from proxy.core.approvals import NextCalls, Operator
from proxy.core.model import JsonObject
from proxy.core.secret_variables import OPERATOR_TOKEN_ENV
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens, read_token
from proxy.store.open_store import open_store
from proxy.system import run_file
from proxy.twophase.review import ProposalReview


class OwnReview:
    """ProposalReview in this process, for one operator."""

    def __init__(self, review: ProposalReview, operator: Operator) -> None:
        self.list = review.list
        self.show = review.show
        self.list_standing = review.list_standing
        self._review = review
        self._operator = operator

    async def approve(self, proposal_id: str, reason: str, next_calls: NextCalls | None = None) -> JsonObject:
        return await self._review.approve(proposal_id, self._operator, reason, next_calls)

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        return await self._review.reject(proposal_id, self._operator, reason)

    async def revoke_standing(self, standing_id: str, reason: str) -> JsonObject:
        return await self._review.revoke_standing(standing_id, self._operator, reason)


type Review = RemoteReview | OwnReview


def find_token(state_dir: Path, token_file: Path | None) -> str:
    """Return the operator's token: from `token_file`, the environment, or the first operator's file.

    Raises ConfigError if there is none.
    """
    if token_file is not None:
        return read_token(token_file)
    if token := os.environ.get(OPERATOR_TOKEN_ENV):
        return token.strip()
    own = OperatorTokens(state_dir).token_file
    if not own.exists():
        raise ConfigError(
            f"this needs an operator's token, and {own} does not exist; give --token-file or {OPERATOR_TOKEN_ENV}, "
            "or create one with `interlock operators add NAME`"
        )
    return read_token(own)


@contextlib.asynccontextmanager
async def open_review(settings: Settings, token: str) -> AsyncIterator[Review]:
    """Yield a review. Raises ConfigError if the token is not an operator's."""
    # Through the proxy if one runs: it holds the audit log, and two writers of one log are refused.
    running = run_file.read(settings.state_dir)
    if running is not None and running.operator_socket is not None:
        yield RemoteReview(Path(running.operator_socket), token)
        return
    operator = OperatorTokens(settings.state_dir).operator(token)
    if operator is None:
        raise ConfigError("this is not an operator's token of this state folder; see `interlock operators list`")
    store = open_store(settings.postgres, settings.state_dir)
    with contextlib.closing(open_daemon_log(settings)) as sink:
        try:
            yield OwnReview(ProposalReview(store, sink, time.time), operator)
        finally:
            await store.close()
