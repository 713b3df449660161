"""Values that wait for one browser's next request."""

from __future__ import annotations

import pytest

from proxy.console import challenges
from proxy.console.challenges import Challenges


def test_a_value_is_its_owners_once_and_for_a_time() -> None:
    now = [0.0]
    waiting: Challenges[str] = Challenges(10, lambda: now[0])
    waiting.put("a", "first")
    waiting.put("a", "second")
    assert (waiting.take("b"), waiting.take("a"), waiting.take("a")) == (None, "second", None)
    waiting.put("a", "third")
    now[0] = 10.0
    assert waiting.take("a") is None


def test_so_many_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenges, "MAX_OPEN", 2)
    waiting: Challenges[int] = Challenges(10)
    for number in range(3):
        waiting.put(str(number), number)
    assert [waiting.take(str(number)) for number in range(3)] == [None, 1, 2]
