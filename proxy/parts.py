"""The parts that HTTP and stdio share: one gate, built in one way from one set of settings."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from proxy.catalogue import Catalogue
from proxy.files import FileCache, read_or_make_key
from proxy.gate import Gate
from proxy.journal import new_id
from proxy.live_masker import LiveMasker
from proxy.live_pins import watch_approvals
from proxy.live_policy import LivePolicy
from proxy.model import AuditEvent
from proxy.redact import Book
from proxy.store.pins import PinFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.config import Settings
    from proxy.store.log import LocalLog

MASK_KEY_BYTES = 32


class Parts:
    """The policy, the log, the pins, and the gate made of them. Make it inside a running event loop.

    `tools_changed` is called when clients should list tools again: those of the
    server named, or of all. `reloaded` is called after each look at the policy,
    whether it could be used or not. `server` is the one that the gate stands
    before, where there is one alone.
    """

    def __init__(
        self,
        settings: Settings,
        open_sink: Callable[[], LocalLog],
        tools_changed: Callable[[str | None], None],
        reloaded: Callable[[], None] = lambda: None,
        server: str | None = None,
    ) -> None:
        self._tools_changed = tools_changed
        self._on_reload = reloaded
        self._server = server
        self.masker = LiveMasker(
            read_or_make_key(settings.state_dir / "keys" / "mask.key", MASK_KEY_BYTES),
            cache=FileCache(settings.state_dir / "cache"),
        )
        self.policy = LivePolicy(
            settings.policy,
            self._policy_reloaded,
            prepare=lambda policy: self.masker.prepare(policy.detectors),
            book=Book(),
        )
        self.sink = open_sink()
        self.pins = PinFiles(settings.state_dir)
        self.gate = Gate(
            catalogue=Catalogue(policy=self.policy.current, pins=self.pins),
            policy=self.policy.current,
            redactor=self.masker,
            sink=self.sink,
            body_limit=settings.body_limit,
        )

    async def watch(self) -> None:
        """Follow what operators change while it runs. Runs until cancelled."""
        await asyncio.gather(self.policy.watch(), watch_approvals(self.pins, self._approved))

    def close(self) -> None:
        """Leave nothing unwritten."""
        self.gate.close()
        self.sink.close()

    def _policy_reloaded(self) -> None:
        self._on_reload()
        if self.policy.problem is None:
            self._tools_changed(None)

    def _approved(self, server: str) -> None:
        """Record that somebody changed what is approved, and let clients list the tools again."""
        if self._server in (None, server):
            self.sink.record_later(AuditEvent(event_id=new_id(), kind="pins_approved", time=time.time(), server=server))
            self._tools_changed(server)
