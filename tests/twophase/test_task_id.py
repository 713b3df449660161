"""The ids of tasks: they hold a call, and nobody can make or change one."""

from __future__ import annotations

import pytest

from proxy.errors import PhaseError
from proxy.twophase import request_state
from proxy.twophase.request_state import RequestState
from proxy.twophase.task_id import MAX_ID, TaskCall, is_ours, open_id, seal
from proxy.twophase.tokens import KeyRing, SigningKey

RING = KeyRing(SigningKey("k1", b"k" * 32))
CALL = TaskCall("p1", "bot", "bank", "s1", {"name": "pay", "arguments": {"to": "bob \ud800 é", "n": 10**30, "x": 0.1}})


def test_a_call_comes_back_as_it_was_and_cannot_be_read() -> None:
    made = seal(CALL, RING)
    assert is_ours(made)
    assert open_id(made, RING) == CALL
    assert "bob" not in made
    assert made != seal(CALL, RING)


@pytest.mark.parametrize("place", range(0, 240, 11))
def test_no_character_can_be_changed(place: int) -> None:
    made = seal(CALL, RING)
    with pytest.raises(PhaseError, match="bad_signature"):
        open_id(made[:place] + ("A" if made[place] != "A" else "B") + made[place + 1 :], RING)


def test_a_request_state_is_no_task() -> None:
    state = request_state.seal(RequestState("p1", "bot", "bank", "pay", "a" * 64), RING)
    for wrong in (state, "ilt1" + state[5:], "ilt1.", None, 7, "ilt1.k1." + "A" * MAX_ID):
        with pytest.raises(PhaseError, match="bad_signature"):
            open_id(wrong, RING)


def test_a_call_that_is_too_large_is_refused() -> None:
    with pytest.raises(PhaseError, match="proposal_too_large"):
        seal(TaskCall("p1", "bot", "bank", None, {"arguments": {"x": "y" * MAX_ID}}), RING)
