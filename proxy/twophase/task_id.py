"""The ids of tasks that the proxy answers a call with: each is the call itself, sealed. Pure.

So nothing of a call that waits is kept at rest but its proposal; any replica can go on with it; and nobody else can
name a task, or change what it will call.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import PhaseError
from proxy.twophase.sealed_text import NotSealedError, Seal

if TYPE_CHECKING:
    from proxy.twophase.tokens import KeyRing

MAX_ID: Final = 64 << 10
_SEAL: Final = Seal("ilt1", b"interlock task id", MAX_ID)


@dataclass(frozen=True, slots=True)
class TaskCall:
    """The call that a task is of: whose it is, in which session, and what the server is to get."""

    proposal_id: str
    principal: str
    server: str
    session: str | None
    params: dict[str, Any]


def is_ours(task_id: object) -> bool:
    """Return whether a task is one of the proxy's own, and none of the server's."""
    return _SEAL.is_ours(task_id)


def seal(call: TaskCall, ring: KeyRing) -> str:
    """Return the id of a task. Raises PhaseError `proposal_too_large` where its call is too large for one."""
    task_id = _SEAL.seal(json.dumps(asdict(call), ensure_ascii=False).encode("utf-8", "surrogatepass"), ring)
    if len(task_id) > MAX_ID:
        raise PhaseError("proposal_too_large", f"as a task, a call may have at most {MAX_ID * 3 // 4} bytes")
    return task_id


def open_id(task_id: object, ring: KeyRing) -> TaskCall:
    """Return the call of a task. Raises PhaseError `bad_signature` for any id but those that were given out here."""
    try:
        return TaskCall(**json.loads(_SEAL.open(task_id, ring).decode("utf-8", "surrogatepass")))
    except (NotSealedError, ValueError, TypeError) as error:
        raise PhaseError("bad_signature", "the task is not one that was given out here") from error
