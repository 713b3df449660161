import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.redact import builtin
from proxy.redact.detectors import compile_bytes
from proxy.redact.encoded_spans import HEX_LINE, RUN
from proxy.redact.hyperscan_db import AVAILABLE, PatternSet
from proxy.redact.staged_patterns import GATES, StagedPatterns

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="no hyperscan for this platform")
DESCRIBED = [*(detector.hint or detector.pattern for detector in builtin().detectors), HEX_LINE, RUN]


@pytest.mark.parametrize("expression", GATES)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_gate_is_found_in_whatever_stands_behind_it(expression: str, data: st.DataObject):
    text = data.draw(st.from_regex(expression.encode()))
    match = compile_bytes(expression).search(text)  # none where Python takes a byte for white space that RE2 does not
    assert match is None or compile_bytes(GATES[expression]).search(match.group()), text


def test_every_gate_is_of_a_detector_or_sign_that_there_is():
    assert {*GATES} <= {*DESCRIBED}


def test_both_stages_find_what_one_pass_finds():
    source = random.Random(20)
    alphabets = (b"0123456789 .-", b"0123456789abcdefABCDEF :,;-x\n", b"ABCDEFxyz5KL13/+_-", bytes(range(32, 127)))
    whole, staged = PatternSet(DESCRIBED), StagedPatterns(DESCRIBED)
    hits = 0
    for number in range(3000):
        text = bytes(source.choices(alphabets[number % len(alphabets)], k=source.randint(1, 160)))
        found = sorted(whole.found(text))
        assert sorted(staged.found(text)) == found, text
        hits += any(DESCRIBED[index] in GATES for index in found)
    assert hits > 100


def test_an_expression_without_a_gate_is_searched_for_at_once():
    patterns = StagedPatterns(["needle", r"[456]\d{16}"])
    assert patterns.found(b"a needle") == [0]
    assert sorted(patterns.found(b"a needle, 41234567890123456")) == [0, 1]
    assert patterns.found(b"1234567") == []


def test_what_stands_apart_is_searched_for_on_request_alone():
    patterns = StagedPatterns(["needle", "straw", r"[456]\d{16}"], apart={1, 2})
    text = b"a needle, straw 41234567890123456"
    assert patterns.found(text, also_apart=False) == [0]
    assert sorted(patterns.found(text)) == [0, 1, 2]
