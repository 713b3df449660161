"""Opens the stop button: through the running proxy's admin API, or on the files and the store if no proxy runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.admin_api.client import RemoteHalts
from proxy.admin_api.halts import HaltControl
from proxy.audit.restored import open_daemon_log
from proxy.commands.options import ConfigFile, DatabaseUrl, StateDir, store_settings
from proxy.commands.proposals import TokenFile
from proxy.commands.review import find_token
from proxy.config import Settings
from proxy.core.approvals import Operator
from proxy.core.model import JsonObject
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens
from proxy.store.halt_file import HaltFile
from proxy.store.halt_store import Halts
from proxy.store.open_store import open_database
from proxy.system import run_file


class OwnHalts:
    """HaltControl in this process, for one operator."""

    def __init__(self, control: HaltControl, operator: Operator) -> None:
        self._control = control
        self._operator = operator

    async def in_force(self) -> Sequence[JsonObject]:
        return self._control.in_force()

    async def halt(
        self, reason: str, *, agent: str | None, server: str | None, tool: str | None, cut: bool
    ) -> JsonObject:
        return await self._control.halt(self._operator, reason, agent=agent, server=server, tool=tool, cut=cut)

    async def resume(self, reason: str, halt_ids: Sequence[str]) -> Sequence[JsonObject]:
        return await self._control.resume(self._operator, reason, halt_ids)


type StopButton = RemoteHalts | OwnHalts


@dataclass(frozen=True)
class HaltOptions:
    token_file: TokenFile = None
    state_dir: StateDir = None
    database_url: DatabaseUrl = None
    config: ConfigFile = None

    def ask[T](self, question: Callable[[StopButton], Awaitable[T]]) -> T:
        settings = store_settings(self.database_url, self.state_dir, self.config)
        token = find_token(settings.state_dir, self.token_file)

        async def ask() -> T:
            async with open_stop_button(settings, token) as button:
                return await question(button)

        return asyncio.run(ask())


@contextlib.asynccontextmanager
async def open_stop_button(settings: Settings, token: str) -> AsyncIterator[StopButton]:
    """Yield the stop button. Raises ConfigError if the token is not an operator's."""
    running = run_file.read(settings.state_dir)
    if running is not None and running.operator_socket is not None:
        yield RemoteHalts(Path(running.operator_socket), token)
        return
    operator = OperatorTokens(settings.state_dir).operator(token)
    if operator is None:
        raise ConfigError("this is not an operator's token of this state folder; see `interlock operators list`")
    database = open_database(settings.postgres, settings.state_dir)
    with contextlib.closing(open_daemon_log(settings)) as sink:
        try:
            control = HaltControl(Halts(database), HaltFile(settings.state_dir), sink, origin="command")
            yield OwnHalts(control, operator)
        finally:
            await database.close()
