"""Masking JSON: every place a secret can be, and the promises of the mask."""

from __future__ import annotations

import base64
import copy
import json
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import PolicyError
from proxy.redact import mask as mask_module
from proxy.redact.detector_catalog import builtin
from proxy.redact.mask import NUMBER_LIMIT, Masker
from tests.redact.labelled import load

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "aB3dE6" * 6
BOTH = ("secrets", "pii")
POSITIVES = [sample.text for sample in load() if sample.positive and not sample.is_json]
MASKER = Masker(b"a key for tests alone")

texts = st.one_of(
    st.text(max_size=12), st.sampled_from(POSITIVES), st.sampled_from(["AKIA", "=", "password", "[secret:"])
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def _ids(value: object) -> list[tuple[str, str]]:
    return [(finding.detector, finding.path) for finding in MASKER.mask(value, BOTH)[1]]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (AWS, ""),
        ({"a": AWS}, "a"),
        ({"a": {"b": [{"c": f"x {AWS} y"}]}}, "a.b[0].c"),
        ([[["x", AWS]]], "[0][0][1]"),
        ({"we.ird": AWS}, '["we.ird"]'),
        ({"": AWS}, '[""]'),
        ({"a": json.dumps({"k": json.dumps({"j": AWS})})}, "a"),
        ({"a": f"prefix{AWS}"}, "a"),
        ({"a": f"_{AWS}_suffix"}, "a"),
    ],
)
def test_a_secret_is_masked_wherever_it_is(value: object, path: str):
    masked, findings = MASKER.mask(value, ["secrets"])
    assert AWS not in json.dumps(masked)
    assert [(finding.detector, finding.path) for finding in findings] == [("secrets.aws-access-key", path)]


def test_a_mask_is_typed_stable_and_keyed():
    first, second = MASKER.mask([AWS, f"again {AWS}"], ["secrets"])[0]
    assert second == f"again {first}"
    assert first.startswith("[secret:aws-access-key:")
    assert len(first) == len("[secret:aws-access-key:3f9a]")
    fingerprint = MASKER.mask(AWS, ["secrets"])[1][0].fingerprint
    assert first[-5:-1] == fingerprint[:4]
    assert Masker(b"another key altogether").mask(AWS, ["secrets"])[1][0].fingerprint != fingerprint


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="at least 16"):
        Masker(b"short")


def test_a_key_that_is_a_secret_is_masked_and_not_shown_in_paths():
    masked, findings = MASKER.mask({AWS: {"x": GITHUB}, "plain": 1}, ["secrets"])
    [key, plain] = masked
    assert key.startswith("[secret:aws-access-key:")
    assert plain == "plain"
    assert all(AWS not in finding.path for finding in findings)
    assert len(findings) == 2


def test_keys_that_mask_to_the_same_keep_both_entries():
    spelled = AWS.replace("A", "\u0410")
    masked, _ = MASKER.mask({AWS: 1, spelled: 2}, ["secrets"])
    assert sorted(masked.values()) == [1, 2]


def test_keys_keep_their_order():
    masked, _ = MASKER.mask({"a": 1, AWS: 2, "b": 3}, ["secrets"])
    assert list(masked.values()) == [1, 2, 3]


@pytest.mark.parametrize("number", [4111111111111111, 4111111111111111.0, -4111111111111111])
def test_a_number_is_reported_as_unmaskable_and_fit_to_record(number: float):
    masked, [finding] = MASKER.mask({"card": [number]}, ["pii"])
    assert (finding.detector, finding.path, finding.maskable) == ("pii.card", "card[0]", False)
    assert masked["card"][0].startswith("[pii:card:")


def test_text_spelled_as_codes_is_reported_as_unmaskable():
    masked, [finding] = MASKER.mask({"data": [ord(character) for character in AWS]}, ["secrets"])
    assert not finding.maskable
    assert masked["data"].startswith("[secret:aws-access-key:")


def test_a_number_too_long_to_look_at_is_reported():
    _, [finding] = MASKER.mask({"n": 10**5000}, BOTH)
    assert (finding.detector, finding.path, finding.maskable) == (NUMBER_LIMIT, "n", False)


@pytest.mark.parametrize(
    "value",
    [
        [AWS[:4], AWS[4:]],
        {"a": AWS[:10], "b": AWS[10:]},
        ["hello", *[AWS[i : i + 4] for i in range(0, 20, 4)], "world"],
        {"content": [{"type": "text", "text": AWS[:9]}, {"type": "text", "text": AWS[9:]}]},
        {"a": AWS[:10], "n": 7, "b": {"c": AWS[10:]}},
        {"a": "long text. " * 100 + AWS[:10], "b": AWS[10:] + " long text." * 100},
        [
            {"id": "x", "part": base64.b64encode(AWS.encode()).decode()[:12]},
            {"id": "y", "part": base64.b64encode(AWS.encode()).decode()[12:]},
        ],
    ],
)
def test_a_secret_split_over_strings_is_masked_in_each(value: object):
    masked, findings = MASKER.mask(value, ["secrets"])
    assert {finding.detector for finding in findings} == {"secrets.aws-access-key"}
    assert len(findings) >= 2
    assert json.dumps(masked).count("[secret:aws-access-key:") == len(findings)


@pytest.mark.parametrize("cuts", [(15,), (8, 20)])
@pytest.mark.parametrize("text_first", [True, False])
def test_words_of_the_protocol_between_the_pieces_of_a_secret_stay(cuts: tuple[int, ...], text_first: bool):
    pieces = [GITHUB[low:high] for low, high in pairwise((0, *cuts, len(GITHUB)))]
    keys = ("text", "type") if text_first else ("type", "text")
    blocks = [{key: piece if key == "text" else "text" for key in keys} for piece in pieces]
    masked, findings = MASKER.mask({"content": blocks, "role": "user"}, ["secrets"])
    assert [block["type"] for block in masked["content"]] == ["text"] * len(pieces)
    assert {block["text"] for block in masked["content"]} == {MASKER.mask(GITHUB, ["secrets"])[0]}
    assert len(findings) == len(pieces)


def test_a_secret_in_place_of_a_word_of_the_protocol_is_found():
    assert _ids({"type": GITHUB[:15], "text": GITHUB[15:]}) != []
    assert _ids({"content": [{"type": GITHUB}]}) == [("secrets.github-token", "content[0].type")]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(f"x {GITHUB} y".encode()).decode()},
        {"type": "resource", "resource": {"uri": "file:///x", "blob": base64.b64encode(GITHUB.encode()).decode()}},
    ],
)
def test_a_secret_in_binary_content_cannot_be_masked(value: object):
    masked, [finding] = MASKER.mask({"content": [value]}, ["secrets"])
    assert not finding.maskable
    assert "[secret:github-token:" in json.dumps(masked)


def test_data_that_is_no_binary_content_can_be_masked():
    assert [finding.maskable for finding in MASKER.mask({"data": GITHUB}, ["secrets"])[1]] == [True]


def test_a_whole_secret_does_not_swallow_the_string_after_it():
    value = {"token": GITHUB, "type": "text", "kind": "abc"}
    masked, findings = MASKER.mask(value, ["secrets"])
    assert (masked["type"], masked["kind"]) == ("text", "abc")
    assert len(findings) == 1


def test_personal_data_is_not_put_together_from_separate_strings():
    assert MASKER.mask(["41111111", "11111111"], ["pii"])[1] == ()


def test_the_key_of_a_field_says_what_its_value_is():
    assert _ids({"db_password": "plain words here"}) == [("secrets.password-field", "db_password")]
    assert (
        _ids({"aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"})[0][0]
        == "secrets.aws-secret-key"
    )
    assert _ids({"args": ["--password", "hunter2!"]}) == [("secrets.cli-password", "args[1]")]


def test_overlapping_findings_become_one_mask_named_by_the_more_exact():
    masked, findings = MASKER.mask(f"password={GITHUB}", BOTH)
    assert [finding.detector for finding in findings] == ["secrets.github-token"]
    assert masked.startswith("password=[secret:github-token:")


def test_two_secrets_in_one_string_are_both_masked():
    masked, findings = MASKER.mask(f"{AWS},{GITHUB} {AWS}", BOTH)
    assert masked.count("[secret:") == 3
    assert len(findings) == 2


def test_only_what_is_asked_for_is_masked():
    value = {"mail": "bob@example.com", "key": AWS}
    assert MASKER.mask(value, ["pii"])[0]["key"] == AWS
    assert MASKER.mask(value, ["secrets"])[0]["mail"] == "bob@example.com"
    assert MASKER.mask(value, []) == (value, ())


def test_an_unknown_detector_is_refused():
    with pytest.raises(PolicyError):
        MASKER.mask("x", ["nonsense"])


def test_a_forged_mask_hides_nothing():
    for label in ("jwt", "nonsense"):
        masked, findings = MASKER.mask(f"[secret:{label}:0000]{AWS}[secret:{label}:0000]", ["secrets"])
        assert AWS not in masked
        assert findings
    hidden = AWS.encode().hex()
    assert MASKER.mask(f"[secret:{hidden}:0000]", ["secrets"])[1]


def test_nothing_recurses():
    value: object = AWS
    for _ in range(20_000):
        value = [value]
    masked, [finding] = MASKER.mask(value, ["secrets"])
    for _ in range(20_000):
        [masked] = masked
    assert masked.startswith("[secret:")
    assert finding.path.startswith("\N{HORIZONTAL ELLIPSIS}")


def test_untouched_parts_are_shared_and_the_input_stays_as_it_was():
    value = {"a": {"big": ["x"]}, "b": AWS}
    before = copy.deepcopy(value)
    masked, _ = MASKER.mask(value, ["secrets"])
    assert value == before
    assert masked["a"] is value["a"]


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_any_json_is_masked_without_raising_and_left_alone_itself(value: object):
    before = repr(value)
    masked, findings = MASKER.mask(value, BOTH)
    assert repr(value) == before
    if not findings:
        assert masked is value


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_masking_twice_changes_nothing(value: object):
    once, findings = MASKER.mask(value, BOTH)
    twice, again = MASKER.mask(once, BOTH)
    assert repr(twice) == repr(once)
    assert not [finding for finding in again if finding.maskable], (findings, again)


ENCODE = [
    lambda text: text,
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    lambda text: base64.b32encode(text.encode()).decode(),
    lambda text: text.encode().hex(),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
]
SECRETS = [AWS, GITHUB, "glpat-" + "x7Kd" * 5, "sk_live_" + "9aZ" * 8, "npm_" + "Ab3" * 12]


@settings(max_examples=200, deadline=None)
@given(json_values, st.sampled_from(SECRETS), st.sampled_from(ENCODE), st.text(max_size=10), st.text(max_size=10))
def test_a_planted_secret_is_never_left(value, secret, encode, before, after):
    planted = {"other": value, "here": f"{before} {encode(secret)} {after}"}
    masked, findings = MASKER.mask(planted, ["secrets"])
    dump = json.dumps(masked, ensure_ascii=False)
    assert findings
    for spelling in ENCODE:
        assert spelling(secret) not in dump


def test_the_mask_of_every_builtin_detector_is_known_as_a_mask():
    for index, detector in enumerate(builtin().detectors):
        mask = MASKER.mask_for(index, "3f9a000000000000")
        assert MASKER.blank_masks([mask.encode()]) == [b"\x00" * len(mask)], detector.id


def test_in_a_large_text_every_secret_is_masked_and_nothing_else_changes():
    filler = "The quick brown fox jumps over the lazy dog.\n" * 2500
    value = {"text": f"{AWS}\n{filler}{GITHUB}\n{filler}{AWS} and {GITHUB}", "other": [filler, AWS]}
    masked, findings = MASKER.mask(value, ["secrets"])
    aws, github = (MASKER.mask(secret, ["secrets"])[0] for secret in (AWS, GITHUB))
    assert masked == {"text": f"{aws}\n{filler}{github}\n{filler}{aws} and {github}", "other": [filler, aws]}
    assert MASKER.mask(masked, ["secrets"]) == (masked, ())
    assert {finding.path for finding in findings} == {"text", "other[1]"}


def test_what_is_laid_bare_far_into_a_large_text_is_masked_too():
    filler = "The quick brown fox jumps over the lazy dog.\n" * 2500
    nested = "ghp_" + AWS + "Zx8Kq2" * 6
    masked, _ = MASKER.mask(f"{filler}{nested}\n{filler}", ["secrets"])
    assert AWS not in masked
    assert MASKER.mask(masked, ["secrets"]) == (masked, ())
    assert masked.startswith(filler)
    assert masked.endswith(filler)


@pytest.mark.parametrize("bare", ["4111 1111 1111 1111", "4111111111111111", "DE89370400440532013000"])
def test_what_a_mask_lays_bare_is_masked_too_in_texts_of_every_size(bare: str):
    token = "glpat-" + "x7Kd" * 5  # what stands right before it is part of no word once it is masked
    for filler in ("", "The quick brown fox jumps over the lazy dog.\n" * 300):
        masked, found = MASKER.mask({"text": f"{filler}{bare}{token}\n{filler}"}, BOTH)
        assert bare not in masked["text"]
        assert len(found) == 2
        assert MASKER.mask(masked, BOTH) == (masked, ())


def test_what_takes_too_much_work_to_look_into_is_masked_and_nothing_beside_it():
    arguments = {"path": "/srv/a", "text": "token:" * 3000, "after": "plain words"}
    value = {"arguments": arguments, "name": "note"}
    masked, findings = MASKER.mask(value, ["secrets"])
    assert [finding.path for finding in findings] == ["arguments.text"]
    assert masked["arguments"].pop("text").startswith("token:")
    assert masked == {"arguments": {"path": "/srv/a", "after": "plain words"}, "name": "note"}
    padded = {"_meta": {"x": "lorem ipsum " * 60_000}, **value}
    assert not MASKER.is_clean(padded, arguments, ["secrets"])


def _random_text(chance: random.Random, size: int) -> str:
    """Return running text with secrets in it, some side by side, encoded, or named by what stands before them."""
    token = "ghp_" + "".join(chance.choices("abcdefghijkmnpqrstuvwxyzABCDEFGH23456789", k=36))
    parts = (
        *("The quick brown fox jumps over the lazy dog. ", "\n", "password = ", token, f"{token}{token[::-1]}"),
        *(base64.b64encode(f"see {token}".encode()).decode(), "4111 1111 1111 1111 ", "jane.doe@example.com, "),
        *(token.encode().hex(), "[secret:12ab]", "\u200b", "%41%4b", "secret=token=", "x" * 600),
    )
    made = ""
    while len(made) < size:
        made += chance.choice(parts) if chance.random() < 0.2 else parts[0] * chance.randrange(1, 40)
    return made[:size]


def test_texts_of_every_size_are_masked_as_one_that_is_scanned_whole_each_time(monkeypatch: pytest.MonkeyPatch):
    """The short way: what a first scan found is used again, and a second looks near the hits alone."""
    chance, every = random.Random(16), ("secrets", "pii")
    values = [
        {"content": [{"type": "text", "text": _random_text(chance, size)}, {"text": _random_text(chance, 200)}]}
        for size in (100, 2_000, 8_000, 8_200, 9_000, 12_000, 16_500, 20_000, 30_000, 70_000)
        for _ in range(3)
    ]
    short = [MASKER.mask(value, every) for value in values]
    monkeypatch.setattr(mask_module, "_LARGE", 1 << 30)
    monkeypatch.setattr(mask_module, "prove_clean", lambda *_: False)
    assert [MASKER.mask(value, every) for value in values] == short
    assert sum(bool(found) for _, found in short) > 20
