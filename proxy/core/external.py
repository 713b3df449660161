"""Decisions of other services: what a rule asks, and what comes back. Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from proxy.core.model import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.model import Call, Context, Json, JsonObject


@frozen()
class Ask:
    """What one external rule asks, of which service of the settings."""

    rule: str
    service: str
    arguments: Literal["masked", "raw", "none"] = "masked"
    shadow: bool = False


@frozen()
class ExternalAnswer:
    """What a service said. `reason` is the code of a refusal; None where it allows."""

    reason: str | None
    detail: str = ""
    """What the service said beside yes or no, for people."""
    took: float = 0.0
    """Seconds."""
    cached: bool = False

    @property
    def allows(self) -> bool:
        return self.reason is None

    def data(self, ask: Ask) -> JsonObject:
        """Return what an event says of it."""
        told: JsonObject = {"rule": ask.rule, "service": ask.service, "answer": self.reason or "allow"}
        told["ms"] = round(self.took * 1000, 3)
        if self.detail:
            told["said"] = self.detail
        return told | ({"cached": True} if self.cached else {})


@frozen()
class Asked:
    """The subject of a question: a call, where it came from, and its arguments without secrets."""

    call: Call
    context: Context
    call_id: str
    masked: Json = None


class ExternalDecisions(Protocol):
    """Asks other services about calls."""

    async def ask(self, asks: Sequence[Ask], asked: Asked) -> Mapping[Ask, ExternalAnswer]:
        """Return an answer for each; one that cannot be had is a refusal. Never raises."""
        ...
