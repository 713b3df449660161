"""The operators' API on real sockets, before a desk among fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from proxy.admin_api.server import AdminApiServer
from proxy.identity.token_file import AgentTokens, OperatorTokens
from tests.support.proposal_fixture import ReviewFixture, new_proposal
from tests.support.timeouts import PATIENCE


class Served:
    """A console that runs, and clients to it."""

    def __init__(self, state_dir: Path) -> None:
        self.world = ReviewFixture()
        self.world.lay(new_proposal())
        self.tokens = OperatorTokens(state_dir)
        self.token = self.tokens.add("alice")
        self.agent_token = AgentTokens(state_dir).add("bot")
        self.admin_api = AdminApiServer(self.world.review, self.tokens, self.world, state_dir, ("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return self.admin_api.addresses[0][1]

    def client(self, via: str = "unix", token: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        if via == "tcp":
            return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=PATIENCE)
        transport = httpx2.AsyncHTTPTransport(uds=str(self.admin_api.path))
        return httpx2.AsyncClient(base_url="http://operator", headers=headers, transport=transport, timeout=PATIENCE)


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr("proxy.admin_api.auth.WRONG_TOKEN_SECONDS", 0.05)
    served = Served(tmp_path)
    served.admin_api.start()
    try:
        yield served
    finally:
        await served.admin_api.stop()
