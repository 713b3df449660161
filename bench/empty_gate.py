"""The daemon with a gate that lets everything pass: what the embedding costs by itself.

`python bench/empty_gate.py up …` takes what `interlock up` takes. Bodies are neither read, decided on nor
recorded; all else is as it is. For measuring only: nothing in the product can start it this way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import addons.http_carrier
import addons.lane.lane
from proxy import cli
from proxy.core.model import Call, Context, Decision, Forward, InFlightCall, Kind, Message, Outcome, Verdict
from proxy.gate.gate import Gate
from proxy.gate.router import ResponseRouter
from proxy.runtime import wiring

NOTHING = Message(Kind.REQUEST, {}, "tools/call", 1)
ALLOWED = Decision(Outcome.ALLOW, "default_allow")


class EmptyGate(Gate):
    """Forwards everything as it came."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.requests.inspect = self._inspect  # type: ignore[method-assign]

    async def _inspect(self, body: bytes, context: Context, *_: Any) -> Verdict:
        return as_it_came(body, context)


def as_it_came(body: bytes, context: Context) -> Forward:
    """Return the verdict that forwards a body unread."""
    in_flight = InFlightCall("", NOTHING, context, Call("", "", ""), ALLOWED, 0.0, 0.0, closed=True)
    return Forward(NOTHING, in_flight, {}, body, len(body))


class UnreadResponse(ResponseRouter):
    """Lets a response pass as it came."""

    def rewrite_whole(self, body: bytes) -> list[bytes] | None:  # noqa: ARG002  it is not read
        return None

    rewrite = rewrite_whole


def _unread(*parts: Any) -> ResponseRouter:
    return UnreadResponse(*parts)


def serve(gate: type[Gate]) -> None:
    """Be `interlock` with another gate, which reads no response."""
    wiring.Gate = gate  # type: ignore[misc]
    addons.http_carrier.router_for = addons.lane.lane.router_for = _unread  # type: ignore[assignment]
    cli.main()


if __name__ == "__main__":
    serve(EmptyGate)
