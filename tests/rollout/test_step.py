"""Signed steps: what was signed counts, under its own number, and nothing else."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.rollout import SignedStep
from proxy.errors import PolicyError
from proxy.rollout.step import FORMAT, Canary, Step, Version, link_of, parse, sign, verify
from tests.rollout.fixtures import KEY, KEYS, OTHER, OTHER_KEY, PUBLIC, SIGNER, bundle, canary, step

WITH_CANARY = step(7, canary=canary(7, bundle("rm"), agents=("build-*",)), stable=Version(5, "a" * 64), note="why ü")


@pytest.mark.parametrize("made", [step(), WITH_CANARY, step(3, canary=canary(3, bundle("rm"), replicas=("a", "b")))])
def test_what_was_signed_is_read_as_it_was(made: Step) -> None:
    assert verify(sign(made, *SIGNER), KEYS) == made


def test_a_version_names_its_number_and_content() -> None:
    assert str(Version(7, "ab" * 32)) == "v7-" + "ab" * 32


def test_no_signature_another_key_and_a_changed_body_are_refused() -> None:
    good = sign(step(4), *SIGNER)
    forged = sign(step(4), PUBLIC.key_id, OTHER_KEY)
    for bad, said in (
        (replace(good, signature=""), "no valid signature"),
        (replace(good, signature="!" + good.signature), "no valid signature"),
        (forged, "no valid signature"),
        (sign(step(4), OTHER.key_id, OTHER_KEY), "not trusted"),
        (replace(good, body=good.body.replace("olga", "otto")), "no valid signature"),
        (replace(good, body=good.body + " "), "no valid signature"),
    ):
        with pytest.raises(PolicyError, match=said):
            verify(bad, KEYS)


def test_an_old_step_under_a_new_number_is_refused() -> None:
    with pytest.raises(PolicyError, match="signed as step 4"):
        verify(replace(sign(step(4), *SIGNER), number=9), KEYS)


def test_a_signature_for_another_purpose_is_none_for_a_step() -> None:
    body = step(4).body()
    bare = base64.b64encode(KEY.sign(body.encode())).decode()
    with pytest.raises(PolicyError, match="no valid signature"):
        verify(SignedStep(4, body, PUBLIC.key_id, bare), KEYS)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0},
        {"number": True},
        {"number": 1 << 63},
        {"number": "1"},
        {"action": "other"},
        {"operator": None},
        {"operator": "x" * 1001},
        {"at": "now"},
        {"at": True},
        {"stable": {"number": 9, "digest": "a" * 64}},
        {"stable": {"number": 1, "digest": "A" * 64}},
        {"stable": {"number": 1, "digest": "a" * 64, "more": 1}},
        {"canary": {"number": 1, "digest": "a" * 64, "replicas": [], "agents": []}},
        {"canary": {"number": 1, "digest": "a" * 64, "replicas": ["a"], "agents": ["b"]}},
        {"canary": {"number": 1, "digest": "a" * 64, "replicas": [""], "agents": []}},
        {"canary": {"number": 1, "digest": "a" * 64, "replicas": [1], "agents": []}},
        {"format": "interlock-policy-step-2"},
        {"more": 1},
    ],
)
def test_a_body_of_another_form_is_refused_however_it_is_signed(change: dict[str, Any]) -> None:
    body = json.dumps({**json.loads(step().body()), **change}, sort_keys=True, separators=(",", ":"))
    signature = base64.b64encode(KEY.sign(FORMAT.encode() + b"\0" + body.encode())).decode()
    with pytest.raises(PolicyError, match="not of the format"):
        verify(SignedStep(1, body, PUBLIC.key_id, signature), KEYS)


@pytest.mark.parametrize("body", ["", "[]", "{}", "null", "[" * 100_000, '{"a": NaN}'])
def test_what_is_no_step_is_refused(body: str) -> None:
    with pytest.raises(PolicyError):
        parse(body)


def test_a_step_that_nobody_would_take_is_not_signed() -> None:
    with pytest.raises(PolicyError):
        sign(step(1, canary=Canary(Version(1, "a" * 64))), *SIGNER)


def test_steps_are_linked() -> None:
    first, second = sign(step(1), *SIGNER), sign(step(2), *SIGNER)
    assert link_of(None) == ""
    assert link_of(first) != link_of(second)
