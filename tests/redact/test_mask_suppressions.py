"""A suppression lets be what it names, and nothing else."""

from __future__ import annotations

import base64

import pytest

from proxy.core.model import Suppression
from proxy.redact.mask import Masker
from proxy.redact.scan import BLOCK

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
MASKER = Masker(b"a key for tests alone")
FINGERPRINT = MASKER.mask(AWS, ["secrets"])[1][0].fingerprint
VALUE = {"files": [{"doc": AWS}], "other": AWS}


def _masked(**entry: str) -> dict:
    return MASKER.mask(VALUE, ["secrets"], [Suppression("documentation sample", **entry)])[0]


def test_a_fingerprint_is_let_be_everywhere():
    assert _masked(fingerprint=FINGERPRINT) == VALUE


@pytest.mark.parametrize("path", ["files[0].doc", "files[*].doc", "files[**", "**.doc", "files[?].d*"])
def test_a_detector_at_a_path_is_let_be_there_alone(path: str):
    masked = _masked(detector="secrets.aws-access-key", path=path)
    assert masked["files"] == VALUE["files"]
    assert masked["other"] != AWS


@pytest.mark.parametrize(
    "entry",
    [
        {"fingerprint": "0" * 16},
        {"detector": "secrets.jwt", "path": "other"},
        {"detector": "secrets.*", "path": "elsewhere"},
        {"detector": "secrets.*", "path": "files[*"},
        {"detector": "secrets.*", "path": "*.doc"},
        {"fingerprint": FINGERPRINT, "path": "elsewhere"},
    ],
)
def test_what_is_not_meant_is_masked(entry: dict):
    assert AWS not in str(_masked(**entry))


def test_a_suppressed_secret_does_not_shelter_another_in_the_same_string():
    other = "ghp_" + "Zx8Kq2" * 6
    masked, findings = MASKER.mask(f"{AWS} {other}", ["secrets"], [Suppression("sample", fingerprint=FINGERPRINT)])
    assert masked.startswith(AWS)
    assert other not in masked
    assert len(findings) == 1


def test_a_star_does_not_reach_into_what_is_deeper():
    value = {"content": [{"text": AWS, "items": [{"text": AWS}]}]}
    entry = Suppression("sample", detector="secrets.*", path="content[*].text")
    masked, [finding] = MASKER.mask(value, ["secrets"], [entry])
    assert masked["content"][0]["text"] == AWS
    assert finding.path == "content[0].items[0].text"


def test_a_split_secret_is_let_be_only_where_each_part_is_meant():
    value = {"a": AWS[:10], "b": AWS[10:]}
    one = Suppression("sample", detector="secrets.*", path="a")
    other = Suppression("sample", detector="secrets.*", path="b")
    assert [finding.path for finding in MASKER.mask(value, ["secrets"], [one])[1]] == ["a", "b"]
    assert MASKER.mask(value, ["secrets"], [one, other])[1] == ()


def test_a_suppressed_secret_does_not_run_on_into_the_next_string():
    token = "ghp_" + "Zx8Kq2" * 6
    entry = Suppression("sample", detector="secrets.*", path="a")
    assert MASKER.mask({"a": token, "b": "text"}, ["secrets"], [entry])[1] == ()


def test_what_is_encoded_after_more_suppressed_findings_than_are_counted_is_masked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.redact.scan.MAX_MATCHES", 2_000)
    hidden = base64.b64encode(f"key {AWS} key".encode()).decode()
    text = "a1@example.com " * 2_000 + "a few words " * (BLOCK // 8) + hidden
    entry = Suppression("a list of members", detector="pii.email", path="members")
    masked, findings = MASKER.mask({"members": text}, ["secrets", "pii"], [entry])
    assert hidden not in masked["members"]
    assert [finding.detector for finding in findings] == ["secrets.aws-access-key"]
