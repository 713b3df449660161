"""Tells targets of proposals, in the background: finds what is untold, puts it into the outbox, sends what is due.

No call waits for it and no decision depends on it: it reads the store, and whatever fails here is logged and tried
again. Several processes do this at once; the outbox lets one of them send each notice.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import structlog

from proxy.errors import ConfigError, NotifyError, StoreUnavailableError
from proxy.notify.notice import make_notice
from proxy.notify.send import TIMEOUT, send
from proxy.notify.targets import read_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxy.core.notices import DueNotice, Outbox
    from proxy.core.proposals import Proposal
    from proxy.notify.targets import Target

log = structlog.get_logger("interlock.notify")

POLL_SECONDS: Final = 1.0
# A claim outlives the longest try, so that nobody sends again what is still being sent.
CLAIM_SECONDS: Final = 6 * TIMEOUT
BACK_OFF: Final = (5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0)
KEEP_SECONDS: Final = 7 * 86_400.0
SWEEP_SECONDS: Final = 3600.0


class Notifier:
    """Tells every target of `targets`. Run it until cancelled."""

    def __init__(
        self,
        outbox: Outbox,
        targets: Mapping[str, Target],
        environ: Mapping[str, str],
        page: Callable[[Proposal], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._outbox = outbox
        self._targets = targets
        self._environ = environ
        self._page = page
        self._clock = clock
        self._swept = 0.0

    async def run(self) -> None:
        """Tell what there is to tell, every second, until cancelled; without targets there is nothing to do."""
        while self._targets:
            try:
                await self.tell()
            except StoreUnavailableError as error:
                log.warning("nobody is told of proposals while the store does not answer", error=str(error))
            except Exception as error:
                log.exception("notices failed", exc_info=error)
            await asyncio.sleep(POLL_SECONDS)

    async def tell(self) -> int:
        """Put what is untold into the outbox and send what is due; return how many notices were sent."""
        now = self._clock()
        for name in self._targets:
            for proposal, state in await self._outbox.untold(name, now):
                notice = make_notice(proposal, state, self._page(proposal))
                await self._outbox.add(name, proposal.proposal_id, state, notice, now)
        if now >= self._swept + SWEEP_SECONDS:
            self._swept = now
            await self._outbox.sweep(now - KEEP_SECONDS)
        sent = 0
        while (due := await self._outbox.claim(self._clock(), self._clock() + CLAIM_SECONDS)) is not None:
            sent += await self._send(due)
        return sent

    async def _send(self, due: DueNotice) -> bool:
        target = self._targets.get(due.target)
        if target is None:
            await self._outbox.give_up(due, "the settings name no such target", self._clock())
            return False
        try:
            secrets = read_secrets(due.target, target, self._environ)
            await asyncio.to_thread(send, due.body, target, secrets, self._clock())
        except (NotifyError, ConfigError) as error:
            await self._retry(due, str(error))
            return False
        await self._outbox.sent(due, self._clock())
        return True

    async def _retry(self, due: DueNotice, problem: str) -> None:
        log.warning("a notice was not taken", target=due.target, attempt=due.attempts + 1, problem=problem)
        if due.attempts >= len(BACK_OFF):
            await self._outbox.give_up(due, problem, self._clock())
            return
        await self._outbox.failed(due, problem, self._clock() + BACK_OFF[due.attempts])
