"""Each verdict has one way out, and what is no verdict has none."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.model import Answer, Call, Denial, Forward, InFlightCall, Kind, Message, Pass, Reject
from proxy.gate.verdict_carrier import carry_out
from tests.support.gate_fixture import ALLOW, CONTEXT

MESSAGE = Message(Kind.REQUEST, {}, "ping", 1)
IN_FLIGHT = InFlightCall("c", MESSAGE, CONTEXT, Call("ping", "s", "a"), ALLOW, 0.0, 0.0)


class Carrier:
    """A transport that notes what it is asked to do."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []

    async def forward(self, verdict: Forward) -> None:
        self.done.append(("forward", verdict))

    async def answer(self, verdict: Answer) -> None:
        self.done.append(("answer", verdict))

    async def reject(self, verdict: Reject) -> None:
        self.done.append(("reject", verdict))

    async def let_pass(self, verdict: Pass) -> None:
        self.done.append(("pass", verdict))


@pytest.mark.parametrize(
    ("verdict", "done"),
    [
        (Forward(MESSAGE, IN_FLIGHT), "forward"),
        (Answer(()), "answer"),
        (Reject(Denial("batch", "no")), "reject"),
        (Pass(), "pass"),
    ],
    ids=["forward", "answer", "reject", "pass"],
)
async def test_each_verdict_is_carried_out_in_its_own_way_and_no_other(verdict: Any, done: str) -> None:
    carrier = Carrier()
    await carry_out(verdict, carrier)
    assert carrier.done == [(done, verdict)]


@pytest.mark.parametrize("verdict", [None, "Forward", True, object(), MESSAGE, Forward, Pass])
async def test_what_is_no_verdict_is_refused_and_nothing_is_done(verdict: Any) -> None:
    carrier = Carrier()
    with pytest.raises(TypeError, match="unknown verdict"):
        await carry_out(verdict, carrier)
    assert carrier.done == []
