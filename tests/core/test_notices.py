"""What people are told, as a value."""

from __future__ import annotations

import dataclasses

import pytest

from proxy.core.notices import DueNotice
from proxy.core.proposals import State


def test_a_claimed_notice_does_not_change() -> None:
    due = DueNotice("ops", "p1", State.PENDING, {}, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        due.attempts = 1  # type: ignore[misc]
