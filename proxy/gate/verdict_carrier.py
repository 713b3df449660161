"""Carries a verdict out: the one place that says what each verdict asks of a transport."""

from __future__ import annotations

from typing import Protocol

from proxy.core.model import Answer, Forward, Held, Pass, Reject, Verdict


class VerdictCarrier(Protocol):
    """What one transport does with one message of a client's, once the gate has decided on it."""

    async def forward(self, verdict: Forward) -> None:
        """Send the canonical form to the server, and have its response routed to the call."""

    async def answer(self, verdict: Answer) -> None:
        """Send the replies to the client; the server gets nothing."""

    async def reject(self, verdict: Reject) -> None:
        """Refuse a message that cannot be answered by its id; the server gets nothing."""

    async def let_pass(self, verdict: Pass) -> None:
        """Handle what is not MCP as this transport does."""

    async def hold(self, verdict: Held) -> None:
        """Wait for people to decide on the call, and carry out the verdict that comes of it."""


async def carry_out(verdict: Verdict, carrier: VerdictCarrier) -> None:
    """Do as the verdict says. Raises TypeError for anything that is no verdict: nothing is forwarded then."""
    match verdict:
        case Forward():
            await carrier.forward(verdict)
        case Answer():
            await carrier.answer(verdict)
        case Reject():
            await carrier.reject(verdict)
        case Pass():
            await carrier.let_pass(verdict)
        case Held():
            await carrier.hold(verdict)
        case _:
            # A gate that returns something else is broken. Each transport refuses on an exception, so raise.
            raise TypeError(f"unknown verdict {verdict!r}")
