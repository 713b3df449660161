"""Notices approvals made by `interlock pins approve` and `forget` in other processes."""

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
    """Call `on_change` with each server whose approvals changed. Runs until cancelled."""
    known = _approvals(pins, {})
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = _approvals(pins, known)
        for server in {*known, *now}:
            # A new server starts at 0 approvals: its first pin is not an approval.
            if now.get(server) != known.get(server, 0):
                on_change(server)
        known = now


def _approvals(pins: PinFiles, known: dict[str, int]) -> dict[str, int]:
    try:
        return pins.approvals()
    except PinsUnavailableError as error:
        log.warning("cannot read the pins", error=str(error))
        return known
