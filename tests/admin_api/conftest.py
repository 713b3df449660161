"""The operators' API on real sockets, before a desk among fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from proxy.admin_api.server import Console
from proxy.identity.agents import AgentBook
from proxy.identity.operators import OperatorBook
from tests.support.proposal_fixture import DeskWorld, new_proposal
from tests.support.timeouts import PATIENCE


class Served:
    """A console that runs, and clients to it."""

    def __init__(self, state_dir: Path) -> None:
        self.world = DeskWorld()
        self.world.lay(new_proposal())
        self.book = OperatorBook(state_dir)
        self.token = self.book.add("alice")
        self.agent_token = AgentBook(state_dir).add("bot")
        self.console = Console(self.world.desk, self.book, self.world, state_dir, ("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return self.console.addresses[0][1]

    def client(self, via: str = "unix", token: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        if via == "tcp":
            return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=PATIENCE)
        transport = httpx2.AsyncHTTPTransport(uds=str(self.console.path))
        return httpx2.AsyncClient(base_url="http://operator", headers=headers, transport=transport, timeout=PATIENCE)


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr("proxy.admin_api.auth.WRONG_TOKEN_SECONDS", 0.05)
    served = Served(tmp_path)
    served.console.start()
    try:
        yield served
    finally:
        await served.console.stop()
