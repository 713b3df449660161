"""The table of signals: what hyperscan and RE2 both take, and what its short notation stands for."""

from __future__ import annotations

import re

import pytest

from proxy.injection.signals import KINDS, SIGNALS, SPACED
from proxy.policy.incoming import IncomingRule
from proxy.redact.detectors import compile_bytes


def test_re2_takes_every_pattern() -> None:
    for signal in (*SIGNALS, *SPACED):
        assert compile_bytes(signal.pattern).search(b"") is None, signal


def test_an_underscore_is_a_gap_only_outside_brackets() -> None:
    (marker,) = [signal for signal in SIGNALS if "im_start" in signal.pattern.replace(r"(?:[\W_]+)", "_")]
    assert re.search(marker.pattern, "<|im_start|>")


def test_rules_can_name_every_kind_and_no_other() -> None:
    for kind in KINDS:
        IncomingRule.model_validate({"id": "x", "action": "flag", "signs": [kind]})
    with pytest.raises(ValueError, match="signs"):
        IncomingRule.model_validate({"id": "x", "action": "flag", "signs": ["charm"]})
