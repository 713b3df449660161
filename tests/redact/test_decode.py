"""Evasions: each encoding, nested, in every place, and where it leads back to."""

from __future__ import annotations

import base64
import json
import urllib.parse

import pytest

from proxy.redact.decode import RootLayer, next_layer
from proxy.redact.mask import DECODING_LIMIT, Masker

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "aB3dE6" * 6
CARD = "4111" + "1111" * 3
WANTED = {AWS: "secrets.aws-access-key", GITHUB: "secrets.github-token", CARD: "pii.card"}


@pytest.fixture(scope="module")
def masker() -> Masker:
    return Masker(b"a key for tests alone")


def _bytes(pattern: str, joint: str = ""):
    return lambda text: joint.join(pattern % byte for byte in text.encode())


ENCODINGS = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 unpadded": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 of utf-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base64 in lines": lambda text: base64.encodebytes(f"{'~' * 50} {text} {'~' * 50}".encode()).decode(),
    "base64 in escaped lines": lambda text: (
        base64.encodebytes(f"{'~' * 50} {text} {'~' * 50}".encode()).decode().replace("\n", "\\n")
    ),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32 lower unpadded": lambda text: base64.b32encode(text.encode()).decode().lower().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "hex with colons": _bytes("%02x", ":"),
    "hex with spaces": _bytes("%02X", " "),
    "hex with 0x": _bytes("0x%02x", ", "),
    "percent": _bytes("%%%02X"),
    "percent u": _bytes("%%u00%02x"),
    "backslash x": _bytes("\\x%02x"),
    "backslash u": _bytes("\\u00%02x"),
    "entities": _bytes("&#x%02x;"),
}
PLACES = {
    "alone": lambda text: text,
    "after a path": lambda text: f"dir/{text}",
    "in a query": lambda text: f"https://h.example/?a=1&k={text}&b=2",
    "in prose": lambda text: f"the value is {text} as you asked",
    "in json": lambda text: json.dumps({"k": text}),
}


@pytest.mark.parametrize("secret", WANTED, ids=["aws", "github", "card"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoded_secret_is_found_and_gone(masker: Masker, encoding: str, place: str, secret: str):
    encoded = ENCODINGS[encoding](secret)
    masked, findings = masker.mask(PLACES[place](encoded), ("secrets", "pii"))
    assert WANTED[secret] in {finding.detector for finding in findings}
    assert encoded not in masked


@pytest.mark.parametrize("outer", ["base64", "hex", "percent", "base32"])
@pytest.mark.parametrize("middle", ["base64", "hex", "percent", "base32"])
@pytest.mark.parametrize("inner", ["base64", "hex", "percent", "base32"])
def test_three_encodings_deep_is_found(masker: Masker, outer: str, middle: str, inner: str):
    text = ENCODINGS[outer](ENCODINGS[middle](ENCODINGS[inner](AWS)))
    masked, findings = masker.mask(f"x {text} y", ["secrets"])
    assert WANTED[AWS] in {finding.detector for finding in findings}
    assert masked.startswith("x [secret:")


def test_only_the_escaped_stretch_is_replaced(masker: Masker):
    url = "https://h.example/?q=" + AWS.replace("I", "%49") + "&z=1"
    masked, _ = masker.mask(url, ["secrets"])
    assert masked.startswith("https://h.example/?q=[secret:aws-access-key:")
    assert masked.endswith("]&z=1")


@pytest.mark.parametrize(
    "text",
    [
        "\u200b".join(AWS),
        "\u202e".join(AWS),
        "\u2066".join(AWS),
        "\ufeff".join(AWS),
        "\u00ad".join(AWS),
        "\u0301".join(AWS),
        "\U000e0041".join(AWS),
        "\ufe0f".join(AWS),
        AWS.replace("A", "\u0410").replace("O", "\u041e"),
        AWS.replace("A", "\u0391").replace("E", "\u0395"),
        "".join(chr(ord(character) + 0xFEE0) for character in AWS),
        "".join(chr(ord(character) - 65 + 0x1D400) if character.isalpha() else character for character in AWS),
        "".join(chr(ord(character) + 0xE0000) for character in AWS),
        "".join(chr(ord(character) - 16 + 0xE0100) for character in AWS),
        urllib.parse.quote("".join(chr(ord(character) + 0xFEE0) for character in AWS)),
    ],
    ids=[
        "zwsp",
        "rlo",
        "isolate",
        "bom",
        "soft-hyphen",
        "accent",
        "tags",
        "selector",
        "cyrillic",
        "greek",
        "fullwidth",
        "math",
        "all-tags",
        "all-selectors",
        "percent-fullwidth",
    ],
)
@pytest.mark.parametrize("before", ["", "a plain line\n", "\u00fc\u4e16\u754c ", "x" * 300 + " "])
def test_a_disguised_secret_is_found_and_nothing_else_goes(masker: Masker, text: str, before: str):
    masked, findings = masker.mask(before + text + " end", ["secrets"])
    assert [finding.detector for finding in findings] == ["secrets.aws-access-key"]
    assert masked.startswith(before + "[secret:aws-access-key:")
    assert masked.endswith("] end")


def test_the_fingerprint_is_that_of_the_secret_however_it_is_written(masker: Masker):
    plain = masker.mask(AWS, ["secrets"])[1][0].fingerprint
    assert {masker.mask(encode(AWS), ["secrets"])[1][0].fingerprint for encode in ENCODINGS.values()} == {plain}


def test_what_decodes_to_too_much_is_reported_as_not_examined(monkeypatch: pytest.MonkeyPatch, masker: Masker):
    monkeypatch.setattr("proxy.redact.mask.SLACK", 0)
    monkeypatch.setattr("proxy.redact.mask.GROWTH", 1)
    _, findings = masker.mask({"a": base64.b64encode(b"some text " * 40).decode()}, ["secrets"])
    assert [(finding.detector, finding.maskable) for finding in findings] == [(DECODING_LIMIT, False)]


def test_plain_text_has_no_other_readings():
    text = b"just a few plain words"
    assert next_layer(RootLayer(text), text) is None


def test_a_text_in_utf16_is_read_right_after_its_own_decoding():
    """What stands beside a text decides how far matches go that touch its ends."""
    wide = "plain text, only wide".encode("utf-16-le").hex()
    layer = next_layer(RootLayer(wide.encode()), wide.encode())
    assert layer is not None
    whole, dropped, shifted = layer.data.partition(b"\nplain text, only wide\n")
    assert whole == bytes.fromhex(wide)
    assert dropped
    assert shifted == bytes.fromhex(wide[1:-1])


def test_of_a_layer_past_the_limit_no_more_is_made_than_tells_so():
    text = b"%41 \\x41 &#x41; \\u0041 " * 100
    whole = next_layer(RootLayer(text), text)
    assert whole is not None
    exactly = next_layer(RootLayer(text), text, most=len(whole.data))
    assert exactly is not None
    assert exactly.data == whole.data
    cut = next_layer(RootLayer(text), text, most=100)
    assert cut is not None
    assert 100 < len(cut.data) < len(whole.data) / 2
