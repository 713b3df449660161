"""A lane is opened by a request that passed the layers well, and by no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy.test.tflow import tflow

from addons.flow_state import state_of
from addons.lane.lanes import Lanes

LESSON: Any = SimpleNamespace(key=(b"", b""))


@pytest.mark.parametrize("what", ["nothing learnt", "answered by the proxy", "another layer"])
def test_what_did_not_pass_the_fast_layers_opens_no_lane(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    master = SimpleNamespace(addons=SimpleNamespace(get=asked.append))
    monkeypatch.setattr("addons.lane.lanes.ctx", SimpleNamespace(master=master))
    flow = tflow(resp=True)
    state = state_of(flow)
    state.lesson = None if what == "nothing learnt" else LESSON
    state.answered = what == "answered by the proxy"
    state.layer = object()
    Lanes(None).response(flow)  # type: ignore[arg-type]
    assert asked == []


def test_a_failure_leaves_the_flow_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Lanes, "_learn", fail)
    flow = tflow(resp=True)
    before = flow.get_state()
    Lanes(None).response(flow)  # type: ignore[arg-type]
    assert flow.get_state() == before
