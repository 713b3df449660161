"""The policy in force: loaded at start, replaced when its files change, kept when the new one is bad."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from proxy.errors import PolicyError
from proxy.policy.load import load_policy, policy_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proxy.model import Policy

log = structlog.get_logger("interlock.policy")

POLL_SECONDS = 1.0


class LivePolicy:
    """Holds the policy that decides now. Raises PolicyError where the first one is bad."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._look()
        self._policy: Policy = load_policy(path)
        self.problem: str | None = None
        self.on_change: Callable[[], None] | None = None

    def current(self) -> Policy:
        """Give the policy in force."""
        return self._policy

    def reload(self) -> bool:
        """Load the files anew; say whether they are in force now. A bad policy leaves the old one."""
        self._stamp = self._look()
        try:
            policy = load_policy(self._path)
        except Exception as error:  # whatever is wrong with the new one, the watch and the old one go on
            self.problem = str(error)
            log.exception("the new policy is bad; the old one stays in force", path=str(self._path), error=self.problem)
            return False
        self.problem = None
        changed = policy.version != self._policy.version
        self._policy = policy
        if changed:
            log.info("policy in force", path=str(self._path), version=policy.version)
            if self.on_change is not None:
                self.on_change()
        return True

    async def watch(self) -> None:
        """Reload whenever the files change. Runs until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._look() != self._stamp:
                self.reload()

    def _look(self) -> tuple[tuple[str, int, int], ...]:
        try:
            return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in policy_files(self._path))
        except (OSError, PolicyError):
            return ()
