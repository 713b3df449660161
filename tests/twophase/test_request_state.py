"""The sealed state that a client sends back."""

from __future__ import annotations

import pytest

from proxy.errors import PhaseError
from proxy.twophase.request_state import MAX_STATE, RequestState, is_ours, open_state, seal
from proxy.twophase.tokens import KeyRing, SigningKey

OLD, NEW = SigningKey("old", b"o" * 32), SigningKey("new", b"n" * 32)
STATE = RequestState("proposal-1", "bot é", "bank.example", "pay", "a" * 64)


def test_what_is_sealed_is_opened_also_after_a_rotation_and_says_nothing() -> None:
    sealed = seal(STATE, KeyRing(OLD))
    assert is_ours(sealed)
    assert open_state(sealed, KeyRing(NEW, (OLD,))) == STATE
    assert "proposal-1" not in sealed
    assert sealed != seal(STATE, KeyRing(OLD))


def test_another_key_opens_nothing() -> None:
    for ring in (KeyRing(NEW), KeyRing(SigningKey("old", b"x" * 32))):
        with pytest.raises(PhaseError, match="bad_signature"):
            open_state(seal(STATE, KeyRing(OLD)), ring)


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_no_character_can_be_changed(place: int) -> None:
    sealed = seal(STATE, KeyRing(OLD))
    changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]
    with pytest.raises(PhaseError, match="bad_signature"):
        open_state(changed, KeyRing(OLD))


@pytest.mark.parametrize("wrong", [None, 7, "", "ilks1.", "ilks1.old.", "ilks1.old.A", "ilks1.old." + "A" * MAX_STATE])
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(PhaseError, match="bad_signature"):
        open_state(wrong, KeyRing(OLD))


def test_a_servers_own_state_is_not_ours() -> None:
    for text in ("", "state", "ILKS1.x", None, 1, ["ilks1."]):
        assert not is_ours(text)
