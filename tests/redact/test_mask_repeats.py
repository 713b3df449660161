"""What is masked once is masked everywhere in a value; many findings leave the rest as it is."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from proxy.core.model import Suppression
from proxy.redact import builtin
from proxy.redact.base64_prefilter import has_text
from proxy.redact.mask import MATCH_LIMIT, Masker

MASKER = Masker(b"a key for tests alone")
CATALOG = builtin()
TOKEN = "x7Kd92mQ4zP1vB8n"


@pytest.mark.parametrize(
    "value",
    [
        f"token = '{TOKEN}' and again {TOKEN}",
        f"first {TOKEN}\nthen api_key={TOKEN}",
        {"api_key": TOKEN, "text": f"use {TOKEN} here"},
        {"text": f"use {TOKEN} here", "deep": [{"apiToken": TOKEN}]},
        {TOKEN: 1, "env": f"API_TOKEN={TOKEN}"},
        {"env": f"API_TOKEN={TOKEN}", "log": base64.b64encode(f"sent {TOKEN} to them".encode()).decode()},
        {"env": f"API_TOKEN={TOKEN}", "log": "x" * 100_000 + f" {TOKEN} " + "y" * 100_000},
    ],
)
def test_what_is_masked_once_is_masked_everywhere_in_the_value(value: Any):
    masked, findings = MASKER.mask(value, ["secrets"])
    assert TOKEN not in str(masked)
    assert base64.b64encode(f"sent {TOKEN} to them".encode()).decode() not in str(masked)
    assert len({finding.fingerprint for finding in findings}) == 1
    assert MASKER.mask(masked, ["secrets"])[1] == ()
    assert MASKER.mask(value, ["secrets"])[0] == masked


def test_a_known_secret_with_little_text_in_a_row_is_found_in_base64_that_no_detector_would_look_into():
    secret = "\u00df\u00e91a2b\u00df\u00e99z8y\u00df\u00e9q7"
    encoded = base64.b64encode(b"\xff" * 9 + secret.encode()).decode()
    assert not has_text(secret.encode())
    assert MASKER._scanner.is_noise(f"/a {encoded}".encode())
    masked, findings = MASKER.mask({"password": secret, "seen": f"/a {encoded}"}, ["secrets"])
    assert encoded not in masked["seen"]
    assert len(findings) == 2


def test_what_two_detectors_find_alike_is_spared_for_the_one_that_a_suppression_names():
    value = {"password": TOKEN}
    found = {detector for detector in CATALOG.detectors if MASKER.mask(value, [detector.id])[1]}
    assert len(found) > 1, "several find it, each by itself"
    for detector in found:
        entry = Suppression("sample", detector=detector.id, path="password")
        [finding] = MASKER.mask(value, ["secrets"], [entry])[1]
        assert finding.detector != detector.id


def test_a_weak_password_is_not_masked_wherever_the_word_stands():
    masked, _ = MASKER.mask({"password": "test123", "text": "run test123 first"}, ["secrets"])
    assert masked["text"] == "run test123 first"
    assert masked["password"] != "test123"


def test_a_suppressed_secret_is_not_masked_elsewhere():
    value = {"token": TOKEN, "text": f"use {TOKEN} here"}
    fingerprint = MASKER.mask(value, ["secrets"])[1][0].fingerprint
    assert MASKER.mask(value, ["secrets"], [Suppression("sample", fingerprint=fingerprint)]) == (value, ())


def test_where_a_secret_is_suppressed_by_path_its_other_places_are_masked():
    value = {"token": TOKEN, "other": {"token": TOKEN}, "text": f"use {TOKEN} here"}
    masked, _ = MASKER.mask(value, ["secrets"], [Suppression("sample", path="token")])
    assert masked["token"] == TOKEN
    assert TOKEN not in str([masked["other"], masked["text"]])


def test_ten_thousand_findings_leave_the_rest_of_the_text_readable():
    rows = [f"{row},user{row}@example.com,ordinary text" for row in range(15_000)]
    masked, findings = MASKER.mask("\n".join(rows), ["pii"])
    lines = masked.split("\n")
    assert len(lines) == len(rows)
    assert all(line.endswith(",ordinary text") and "@" not in line for line in lines)
    assert all(finding.maskable for finding in findings)


def test_more_findings_than_will_be_masked_are_a_limit_and_not_forwarded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.redact.scan.MAX_MATCHES", 100)
    text = "".join(f"user{number}@example.com " for number in range(200))
    masked, findings = MASKER.mask(text, ["pii"])
    assert "@" not in masked, "the record has nothing unmasked"
    assert [(one.detector, one.maskable) for one in findings if not one.maskable] == [(MATCH_LIMIT, False)]
