"""Letting go of old events in such a way that the rest can still be verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import AuditUnavailableError
from proxy.store.chained import last_before

if TYPE_CHECKING:
    from proxy.store.events import Events
    from proxy.store.notary import Notary


async def prune(store: Events, before: float, notary: Notary) -> int:
    """Delete what happened before a time; give how many events are gone.

    Where each writer's chain begins afterwards is signed first. Raises
    AuditUnavailableError where that cannot be done; then nothing is deleted.
    """
    heads = await last_before(store, before)
    if not heads:
        return 0
    if not notary.certify("pruned", heads):
        raise AuditUnavailableError(f"nothing was pruned: no checkpoint of it could be written ({notary.problem})")
    return await store.prune(before)
