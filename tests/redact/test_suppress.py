"""Suppressions are narrow, reasoned, and apply where they say."""

from __future__ import annotations

import pytest

from proxy.errors import PolicyError
from proxy.redact.mask import Masker
from proxy.redact.suppress import Suppressions

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
MASKER = Masker(b"a key for tests alone")
FINGERPRINT = MASKER.mask(AWS, ["secrets"])[1][0].fingerprint
VALUE = {"files": [{"doc": AWS}], "other": AWS}


def _masked(**entry: str) -> dict:
    suppressions = Suppressions.parse([{"reason": "documentation sample", **entry}])
    applying = suppressions.applying(rule="scrub", tool="read_file")
    return MASKER.mask(VALUE, ["secrets"], applying)[0]


def test_a_fingerprint_is_let_be_everywhere():
    assert _masked(fingerprint=FINGERPRINT) == VALUE


@pytest.mark.parametrize("path", ["files[0].doc", "files[*].doc", "files[*"])
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
        {"fingerprint": FINGERPRINT, "rule": "another"},
        {"fingerprint": FINGERPRINT, "tool": "write_*"},
    ],
)
def test_what_is_not_meant_is_masked(entry: dict):
    assert AWS not in str(_masked(**entry))


def test_rule_and_tool_narrow_it():
    assert _masked(fingerprint=FINGERPRINT, rule="scrub", tool="read_*") == VALUE


def test_a_suppression_for_a_tool_is_not_applied_without_one():
    parsed = Suppressions.parse([{"reason": "sample", "fingerprint": FINGERPRINT, "tool": "*"}])
    assert parsed.applying(rule=None, tool=None).entries == ()


@pytest.mark.parametrize(
    "entry",
    [
        {"fingerprint": FINGERPRINT},
        {"reason": ""},
        {"reason": "everything please"},
        {"reason": "too wide", "detector": "secrets.*"},
        {"reason": "too wide", "detector": "secrets.*", "path": "**"},
        {"reason": "no detector", "path": "a.b"},
        {"reason": "short print", "fingerprint": FINGERPRINT[:4]},
        {"reason": "typo here", "fingerprint": FINGERPRINT, "tols": "x"},
    ],
)
def test_a_wide_or_unreasoned_suppression_is_refused(entry: dict):
    with pytest.raises(PolicyError, match="suppression 1"):
        Suppressions.parse([entry])
