"""What every page tells of proposals that wait."""

from __future__ import annotations

from typing import Any

from proxy.console.pending import pending_proposals
from proxy.core.proposals import State
from proxy.errors import StoreUnavailableError


class Review:
    def __init__(self, found: Any) -> None:
        self._found = found

    async def list(self, states: Any, limit: int) -> Any:
        assert states == [State.PENDING]
        if isinstance(self._found, Exception):
            raise self._found
        return self._found[:limit]


async def test_what_waits_is_counted_and_a_store_that_is_gone_says_nothing() -> None:
    found = [{"proposal_id": str(number)} for number in range(3)]
    assert await pending_proposals(Review(found)) == {"count": 3, "ids": ["0", "1", "2"]}  # type: ignore[arg-type]
    assert await pending_proposals(Review(StoreUnavailableError("x"))) is None  # type: ignore[arg-type]
