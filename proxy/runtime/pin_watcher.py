"""Notices what `interlock pins approve` and `forget`, run by somebody else, change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from proxy.errors import PinsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.store.pin_files import PinFiles

log = structlog.get_logger("interlock.pins")

POLL_SECONDS = 1.0


async def watch_approvals(pins: PinFiles, on_change: Callable[[str], None]) -> None:
    """Call `on_change` with a server whose approved tools somebody changed. Runs until cancelled.

    A server that is seen for the first time is no such change.
    """
    known = _look(pins, {})
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = _look(pins, known)
        for server in {*known, *now}:
            if now.get(server) != known.get(server, 0):
                on_change(server)
        known = now


def _look(pins: PinFiles, known: dict[str, int]) -> dict[str, int]:
    try:
        return pins.approvals()
    except PinsUnavailableError as error:
        log.warning("pins cannot be read", error=str(error))
        return known
