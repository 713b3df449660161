"""The state that a client of revision 2026-07-28 sends back with its answer: sealed, of one exact call. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from proxy.errors import PhaseError
from proxy.twophase.sealed_text import NotSealedError, Seal

if TYPE_CHECKING:
    from proxy.twophase.tokens import KeyRing

MAX_STATE: Final = 8192
_SEAL: Final = Seal("ilks1", b"interlock request state", MAX_STATE)


@dataclass(frozen=True, slots=True)
class RequestState:
    """Which proposal a client waits for, and the exact call that it is of."""

    proposal_id: str
    principal: str
    server: str
    tool: str
    arguments_hash: str


def is_ours(text: object) -> bool:
    """Return whether a `requestState` is one that this proxy gave out, and none of the server's."""
    return _SEAL.is_ours(text)


def seal(state: RequestState, ring: KeyRing) -> str:
    return _SEAL.seal(json.dumps(asdict(state)).encode(), ring)


def open_state(text: object, ring: KeyRing) -> RequestState:
    """Return what `seal` sealed. Raises PhaseError `bad_signature` for anything else."""
    try:
        return RequestState(**json.loads(_SEAL.open(text, ring)))
    except (NotSealedError, ValueError, TypeError) as error:
        raise PhaseError("bad_signature", "the requestState is not one that was given out here") from error
