"""Placeholders are made and recognised."""

from __future__ import annotations

import pytest

from proxy.errors import ConfigError
from proxy.vault.placeholder import find, is_placeholder, make


@pytest.mark.parametrize("like", [None, "ghp_", "sk-live."])
def test_a_placeholder_is_found_in_text(like: str | None) -> None:
    made = make("git-hub.1_x", like)
    assert made.startswith(like or "ilkph_git-hub.1_x_")
    assert is_placeholder(made)
    (found,) = find(f'{{"a": "Bearer {made}"}}')
    assert made.endswith(found)
    assert made != make("git-hub.1_x", like)


def test_one_behind_githubs_prefix_is_as_long_as_githubs() -> None:
    assert len(make("a", "ghp_")) == 40


@pytest.mark.parametrize("text", ["", "ilkph_a_", "ilkph", "ilkph_a_" + "A" * 25, "ghp_" + "A" * 36])
def test_other_text_is_none(text: str) -> None:
    assert find(text) == ()
    assert not is_placeholder(text)


@pytest.mark.parametrize(("name", "like"), [("", None), ("a b", None), ("a\n", None), ("a", ""), ("a", "x y")])
def test_a_wrong_name_or_prefix_is_told(name: str, like: str | None) -> None:
    with pytest.raises(ConfigError, match="is not allowed; use"):
        make(name, like)
