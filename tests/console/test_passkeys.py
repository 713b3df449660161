"""What passkeys are bound to. Registrations and logins, right and wrong, are in test_passkey_page.py."""

from __future__ import annotations

import json

import pytest

from proxy.console.passkeys import Wanted, creation_options, relying_party, request_options


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("http://localhost:8090", "localhost"),
        ("https://console.example.com", "console.example.com"),
        ("http://127.0.0.1:8090", None),
        ("http://[::1]:8090", None),
    ],
)
def test_a_passkey_is_bound_to_a_name_and_an_address_has_none(origin: str, name: str | None) -> None:
    party = relying_party(origin)
    assert (party and party.rp_id) == name


def test_a_person_must_be_verified_and_no_operator_is_named_before_the_login() -> None:
    party = relying_party("http://localhost:8090")
    assert party is not None
    asked = json.loads(request_options(Wanted(party, b"x" * 32)))
    assert (asked["userVerification"], asked["allowCredentials"]) == ("required", [])
    made = json.loads(creation_options(Wanted(party, b"x" * 32), "ann", "1.0", ["AAAA"]))
    assert made["authenticatorSelection"]["userVerification"] == "required"
    assert made["authenticatorSelection"]["residentKey"] == "required"
    assert [one["id"] for one in made["excludeCredentials"]] == ["AAAA"]
