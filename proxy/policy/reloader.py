"""The policy in force: loaded at start, replaced when its files change, kept when the new one is bad."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from proxy.errors import PolicyError
from proxy.policy.load import load_policy, policy_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proxy.core.masking import KnownDetectors
    from proxy.policy.decide import CompiledPolicy

    type Ready = tuple[CompiledPolicy, Callable[[], None]]

log = structlog.get_logger("interlock.policy")

POLL_SECONDS = 1.0


class LivePolicy:
    """Holds the policy that decides now. Raises PolicyError where the first one is bad.

    `prepare` makes ready whatever must change with a policy and gives what puts
    it in force; where it raises, the policy is bad. It runs in a thread while
    the proxy serves. `on_change` is called after each reload, whether the new
    policy is in force or not.
    """

    def __init__(
        self,
        path: Path,
        on_change: Callable[[], None] = lambda: None,
        *,
        prepare: Callable[[CompiledPolicy], Callable[[], None]] = lambda _: lambda: None,
        book: KnownDetectors | None = None,
    ) -> None:
        self._path = path
        self.on_change = on_change
        self._prepare = prepare
        self._book = book
        self._requested = asyncio.Event()
        self._stamp = self._look()
        self._policy, adopt = self._load()
        adopt()
        self.problem: str | None = None

    def current(self) -> CompiledPolicy:
        """Return the policy in force."""
        return self._policy

    def request_reload(self) -> None:
        """Have the watch load the files anew, whether they changed or not."""
        self._requested.set()

    async def reload(self) -> bool:
        """Load the files anew, in a thread; return whether they are in force now. A bad policy leaves the old one."""
        self._stamp = self._look()
        before = self._policy.version
        try:
            self._take(await asyncio.to_thread(self._load))
        except Exception as error:  # whatever is wrong with the new one, the watch and the old one go on
            self.problem = _tell(error)
            log.exception("the new policy is bad; the old one stays in force", path=str(self._path), error=self.problem)
        else:
            if self._policy.version != before:
                log.info("policy in force", path=str(self._path), version=self._policy.version)
        self.on_change()
        return self.problem is None

    def reload_if_changed(self) -> None:
        """Do once, at once, what `watch` does: for a process without an event loop, which others speak for."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(self._load())
        except Exception as error:  # noqa: BLE001  the workers tell of it
            self.problem = _tell(error)

    def _take(self, ready: Ready) -> None:
        policy, adopt = ready
        adopt()
        self._policy, self.problem = policy, None

    def _load(self) -> Ready:
        policy = load_policy(self._path, self._book)
        return policy, self._prepare(policy)

    async def watch(self) -> None:
        """Reload whenever the files change, or somebody asks. Runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), POLL_SECONDS)
            if self._requested.is_set() or self._look() != self._stamp:
                self._requested.clear()
                await self.reload()

    def _look(self) -> tuple[tuple[str, int, int], ...]:
        try:
            return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in policy_files(self._path))
        except (OSError, PolicyError):
            return ()


def _tell(error: Exception) -> str:
    return str(error) or type(error).__name__
