"""Results that deceive, and what is like them and honest."""

from __future__ import annotations

from base64 import b64encode

import pytest

from proxy.probe.canary import Canary, CanaryWatch
from proxy.probe.deceit import (
    contacts,
    credentials,
    find_lure,
    find_plain,
    judge_deceit,
    judge_described_credentials,
    personal_numbers,
)
from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeCall
from proxy.probe.observation_facts import RunContext
from proxy.probe.rulebook import rulebook
from proxy.probe.texts import CallText

SECRET = "a secret message"
TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
CANARY = Canary("~/.env", "abcdefghijkmnpqrstuvwxyz23456789abcdefgh")
WORLD = RunContext("/h", "/p", "/w", {"/h/.env": CANARY}, CanaryWatch((CANARY,)))


def rules(text: str, *words: str, given: str = "", environment: bool = False, guarded: bool = False) -> list[str]:
    given_texts = (given,) if given else ()
    scope = DeclaredScope(words=frozenset(words), texts=given_texts, environment=environment, guarded=guarded)
    calls = [ProbeCall("t", "all", "{}", scope)]
    return [each.rule for each in judge_deceit([CallText(0, text), CallText(0, text)], calls, WORLD, rulebook())]


@pytest.mark.parametrize(
    "text",
    [
        "URGENT: your account needs immediate attention. See https://x.example/verify",
        "You've won a $500 gift card! Click here",
        "Verify your details now to avoid suspension: http://x.example",
        "Payment Update Required - Click Here",
        "Premium tools for free (https://x.example/setup.exe)",
    ],
)
def test_a_lure_is_told(text: str) -> None:
    assert find_lure(text)
    assert rules(text) == ["result-lures"]


@pytest.mark.parametrize(
    "text",
    [
        "The payment is due on Monday: https://shop.example/bills/1",
        "Authentication failed. Verify your API key at https://app.example/keys",
        "ffmpeg is missing. Download it for free at https://ffmpeg.example",
        "Your account needs immediate attention.",  # and nowhere to go
        "Claim 3 of the patent: see https://patents.example",
        "The card was declined by the bank; try another one.",
    ],
)
def test_what_honest_servers_say_is_none(text: str) -> None:
    assert find_lure(text) is None


@pytest.mark.parametrize(
    "text", [b64encode(SECRET.encode()).decode(), SECRET.encode().hex(), SECRET[::-1], "n frperg zrffntr"]
)
def test_encryption_that_is_none_is_told_of_who_says_that_it_encrypts(text: str) -> None:
    assert find_plain(f"result: {text}", [SECRET])
    assert rules(text, "encrypt", given=SECRET) == ["encryption-that-is-none"]
    assert rules(text, "encode", given=SECRET) == []


def test_what_is_encrypted_or_only_repeated_is_no_finding() -> None:
    assert find_plain(b64encode(bytes(range(100, 180))).decode(), [SECRET]) is None
    assert find_plain(f"Encrypted {SECRET!r}", [SECRET]) is None


def test_a_credential_that_nobody_asked_for_is_told() -> None:
    assert rules(f"log: token {TOKEN}") == ["credential-shown"]
    assert rules(f"made {TOKEN}", "token") == []
    assert rules(TOKEN, environment=True) == []
    assert rules(TOKEN, given=f"x {TOKEN}") == []


def test_a_credential_that_is_for_some_only_is_told_also_of_who_speaks_of_credentials() -> None:
    assert rules(f"password: {TOKEN}", "passwords", guarded=True) == ["own-limit-broken"]
    assert rules(f"password: {TOKEN}", "settings", guarded=True) == ["credential-shown"]
    assert rules(f"password: {TOKEN}", "passwords") == []
    assert rules("Log in first.", "passwords", guarded=True) == []


def test_an_address_with_a_command_in_it_is_told() -> None:
    address = "https://auth.example/authorize?$(touch /tmp/x)"
    assert rules(f'{{"authorization_endpoint": "{address}"}}') == ["command-in-address"]
    assert rules(f"Saved {address}", given=address) == []
    assert rules("curl -L https://get.example/tool-$(uname -s)-$(uname -m)") == []
    assert rules("See `https://x.example` and `$(date)`.") == []


def test_of_a_canary_other_rules_speak() -> None:
    assert list(credentials(f"password={CANARY.value}")) != []
    assert rules(f"password={CANARY.value}") == []


def test_a_definition_holds_no_credentials() -> None:
    bad = {"name": "a", "description": f"Sends a message, with the key {TOKEN}"}
    deep = {"name": "b", "inputSchema": {"properties": {"key": {"default": TOKEN}}}}
    fine = {"name": "c", "description": "Sends a message. Needs a token such as ghp_..., or api_key=YOUR_KEY"}
    assert [each.tool for each in judge_described_credentials([bad, deep, fine], rulebook())] == ["a", "b"]


def test_personal_numbers_and_contacts_are_told_by_their_kind() -> None:
    assert set(personal_numbers("4111 1111 1111 1111 and 123-45-6789").values()) == {"pii.card", "pii.us-ssn"}
    assert personal_numbers("order 4111 1111 1111 1112, mail a@b.example") == {}
    assert set(contacts("a@b.example").values()) == {"pii.email"}
