"""Keeps the halts of one process as the files and the store say: seen here within a tenth of a second of the file.

Every worker watches by itself, so that one which hangs holds up no other. What the store says is put in the file, for
this machine's other processes and for a start without the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from proxy.errors import ConfigError, StoreUnavailableError
from proxy.gate.halts import ActiveHalts
from proxy.store.halt_file import HaltFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proxy.core.halts import Halt, HaltStore

log = structlog.get_logger("interlock.halts")

LOOK_SECONDS: Final = 0.05
ASK_SECONDS: Final = 0.5


def read_halts(state_dir: Path) -> ActiveHalts:
    """Return what is halted as a process starts. Raises ConfigError where that cannot be known: nothing starts then."""
    return ActiveHalts(HaltFile(state_dir).in_force())


class HaltWatcher:
    """Puts halts in force in one process.

    `on_change` is told what was `halted` and `resumed`; `on_cut` of each new halt that ends what is under way.
    """

    def __init__(
        self,
        halts: ActiveHalts,
        file: HaltFile,
        store: HaltStore,
        on_change: Callable[[str, Halt], None] = lambda *_: None,
    ) -> None:
        self._halts = halts
        self._file = file
        self._store = store
        self._on_change = on_change
        self.on_cut: Callable[[Halt], None] = lambda _: None
        self._told = asyncio.Event()
        self._away = False
        self.is_well = False  # whether the store was read the last time
        # Whether another process of this machine follows the store, and writes to the file what it finds.
        self.is_followed: Callable[[], bool] = lambda: False

    def tell(self) -> None:
        """Ask the store at once: somebody said that halts have changed there."""
        self._told.set()

    async def watch(self) -> None:
        """Follow the files and the store. Runs until cancelled."""
        await asyncio.gather(self._watch_files(), self._ask_store())

    async def _watch_files(self) -> None:
        # None: what was read at the start may be older than what is there now.
        seen = None
        while True:
            try:
                stamp = self._file.stamp()
                if stamp != seen:
                    self._put_in_force(self._file.in_force())
                    seen = stamp
            except ConfigError as error:
                # What is in force stays so.
                log.exception("the halts cannot be read", error=str(error))
                seen = None
                await asyncio.sleep(ASK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    def _put_in_force(self, halts: tuple[Halt, ...]) -> None:
        before = self._halts.halts
        for halt in self._halts.update(halts):
            log.warning("halted", scope=halt.scope, reason=halt.reason, operator=halt.operator, cut=halt.cut)
            self._on_change("halted", halt)
            if halt.cut:
                self.on_cut(halt)
        for halt in before:
            if halt not in halts:
                log.warning("resumed", scope=halt.scope, halt_id=halt.halt_id)
                self._on_change("resumed", halt)

    async def _ask_store(self) -> None:
        while True:
            await self._ask_once()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), ASK_SECONDS)
            self._told.clear()

    async def _ask_once(self) -> None:
        if not self.is_followed():
            try:
                self._file.learn(await self._store.read())
                if own := self._file.read().own:
                    self._file.learn(await self._store.add(own))
                self._away, self.is_well = False, True
            except (StoreUnavailableError, ConfigError) as error:
                if not self._away:
                    log.warning("the store of halts cannot be read; those known stay in force", error=str(error))
                self._away, self.is_well = True, False
