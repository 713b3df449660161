"""What every page tells of the proposals that wait for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxy.core.proposals import State
from proxy.errors import StoreUnavailableError

if TYPE_CHECKING:
    from proxy.twophase.review import ProposalReview

MAX_PENDING: Final = 100


async def pending_proposals(review: ProposalReview) -> Any:
    """Return how many wait, and which; None where the store cannot be asked."""
    try:
        found = await review.list([State.PENDING], MAX_PENDING)
    except StoreUnavailableError:
        return None
    return {"count": len(found), "ids": [one["proposal_id"] for one in found]}
