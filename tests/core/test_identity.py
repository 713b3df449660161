"""What is proven of an agent: claims as rules and events see them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.identity import MAX_ACTORS, MAX_SHOWN_TEXT, Identity, actors_of


def identity(shown: tuple[str, ...] = (), **claims: Any) -> Identity:
    return Identity("okta", "https://id", "bot", "key", claims, shown)


@pytest.mark.parametrize(
    ("claims", "claim", "values"),
    [
        ({"groups": ["a", "b"]}, "groups", {"a", "b"}),
        ({"groups": "a b"}, "groups", {"a b"}),
        ({"scope": "read write"}, "scope", {"read", "write"}),
        ({"email_verified": True, "level": 3}, "email_verified", {"true"}),
        ({"level": 3}, "level", {"3"}),
        ({"level": 1.5, "o": {}, "n": None}, "level", set()),
        ({"o": {"a": "b"}}, "o", set()),
        ({"groups": ["a", ["b"], {"c": 1}, None]}, "groups", {"a"}),
        ({"https://example.com/role": "x"}, "https://example.com/role", {"x"}),
        ({"kubernetes.io": {"namespace": "prod"}}, "/kubernetes.io/namespace", {"prod"}),
        ({"a/b": {"c~d": "x"}}, "/a~1b/c~0d", {"x"}),
        ({"a": "text"}, "/a/b", set()),
        ({"act": {"sub": "bot", "iss": "i", "act": {"sub": "inner"}}}, "act.sub", {"bot"}),
        ({"act": {"sub": "bot", "iss": "i"}}, "act.iss", {"i"}),
        ({"act.sub": "forged"}, "act.sub", set()),
        ({}, "groups", set()),
    ],
)
def test_a_claim_has_values(claims: dict[str, Any], claim: str, values: set[str]) -> None:
    assert identity(**claims).values(claim) == values


def test_events_get_the_chosen_claims_and_no_others_and_not_at_any_length() -> None:
    told = identity(("groups", "absent"), groups=["b", "a"] * 100, email="x@y", act={"sub": "z" * 999}).data()
    assert told["claims"] == {"groups": ["a", "b"]}
    assert len(told["act"][0]) == MAX_SHOWN_TEXT + 1
    assert "x@y" not in str(told)


def test_two_are_equal_if_rules_cannot_tell_them_apart() -> None:
    later = Identity("okta", "https://id", "bot", "key", {"iat": 2}, (), 99.0)
    assert later == identity(iat=1)
    assert hash(later) == hash(identity())
    assert later != Identity("okta", "https://id", "bot", "other")


@pytest.mark.parametrize("act", ["bot", {}, {"sub": 1}, {"sub": ""}, {"sub": "a", "act": {"sub": None}}, []])
def test_a_chain_that_names_nobody_cannot_be_read(act: Any) -> None:
    with pytest.raises(ValueError, match="chain"):
        actors_of({"act": act})


def test_a_chain_has_an_end() -> None:
    chain: dict[str, Any] = {"sub": "0"}
    for number in range(1, MAX_ACTORS):
        chain = {"sub": str(number), "act": chain}
    assert len(actors_of({"act": chain})) == MAX_ACTORS
    with pytest.raises(ValueError, match="chain"):
        actors_of({"act": {"sub": "x", "act": chain}})
