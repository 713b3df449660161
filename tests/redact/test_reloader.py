"""The masker goes with the policy in force, and with the calls that were decided before."""

from __future__ import annotations

import pytest

from proxy.core.model import Suppression
from proxy.errors import PolicyError
from proxy.redact import reloader
from proxy.redact.reloader import REMEMBERED, LiveMasker

KEY = b"a key for tests alone"
TEXT = "BADGE-123456 and DESK-77"
BADGE = {"id": "custom.badge", "description": "Badge", "regex": r"BADGE-\d{6}"}
DESK = {"id": "custom.desk", "description": "Desk", "regex": r"DESK-\d{2}"}


@pytest.fixture
def live() -> LiveMasker:
    made = LiveMasker(KEY)
    made.prepare([BADGE])()
    return made


def test_before_a_policy_is_in_force_nothing_is_masked_or_passed():
    with pytest.raises(PolicyError, match="before a policy"):
        LiveMasker(KEY).mask(TEXT, ["secrets"])


def test_what_is_prepared_masks_once_it_is_put_in_force(live: LiveMasker):
    adopt = live.prepare([BADGE, DESK])
    assert live.mask(TEXT, ["custom"])[0].endswith("DESK-77")
    adopt()
    masked, findings = live.mask(TEXT, ["custom"])
    assert [finding.detector for finding in findings] == ["custom.badge", "custom.desk"]
    assert masked == f"[custom:badge:{findings[0].fingerprint[:4]}] and [custom:desk:{findings[1].fingerprint[:4]}]"


def test_a_call_decided_before_a_reload_is_masked_with_the_detectors_of_its_time(live: LiveMasker):
    live.prepare([DESK])()
    assert live.mask(TEXT, ["custom.badge"])[0] == live.mask("BADGE-123456", ["custom.badge"])[0] + " and DESK-77"
    assert live.mask(TEXT, ["custom"])[0].startswith("BADGE-123456")


def test_a_detector_that_nobody_remembers_is_an_error(live: LiveMasker):
    for number in range(REMEMBERED):
        live.prepare([{**DESK, "id": f"custom.desk-{number}"}])()
    with pytest.raises(PolicyError, match=r"custom\.badge"):
        live.mask(TEXT, ["custom.badge"])


def test_the_same_detectors_are_not_made_anew(live: LiveMasker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reloader, "Masker", None)
    live.prepare([dict(BADGE)])()
    assert "BADGE" not in live.mask(TEXT, ["custom"])[0]


def test_a_failure_to_compile_is_a_bad_policy(live: LiveMasker, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("too large")

    monkeypatch.setattr(reloader, "Masker", fail)
    with pytest.raises(PolicyError, match="too large"):
        live.prepare([DESK])
    assert "BADGE" not in live.mask(TEXT, ["custom"])[0]


def test_suppressions_reach_the_masker(live: LiveMasker):
    fingerprint = live.mask(TEXT, ["custom"])[1][0].fingerprint
    assert live.mask(TEXT, ["custom"], [Suppression("sample", fingerprint=fingerprint)]) == (TEXT, ())
