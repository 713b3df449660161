"""Detectors as data: loading, choosing, custom ones, and each against its labelled texts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import PolicyError
from proxy.redact.detector_catalog import builtin, parse_detector
from proxy.redact.detectors import Detector, compile_bytes, compile_search, longest_match
from proxy.redact.mask import Masker
from proxy.redact.scan import OVERLAP
from tests.redact.labelled import Sample, load

SAMPLES = load()
CUSTOM = {"id": "custom.badge", "description": "Badge", "regex": r"BADGE-\d{6}", "keywords": ["badge"]}


@pytest.fixture(scope="module")
def masker() -> Masker:
    return Masker(b"a key for tests alone")


def _ids(sample: Sample) -> str:
    return f"{sample.detector}-{'yes' if sample.positive else 'no'}"


@pytest.mark.parametrize("sample", SAMPLES, ids=_ids)
def test_each_labelled_text_is_judged_as_labelled(masker: Masker, sample: Sample):
    # What looks like a key and what opens a wallet is found by others, too: each family for itself.
    family = sample.detector.partition(".")[0]
    names = (family,) if family in ("wallet", "shape") else ("secrets", "pii")
    found = {finding.detector for finding in masker.mask(sample.value, names)[1]}
    assert (sample.detector in found) == sample.positive, sample.text


def test_every_detector_has_positives_and_near_misses():
    covered = {(sample.detector, sample.positive) for sample in SAMPLES}
    wanted = {(detector.id, kind) for detector in builtin().detectors for kind in (True, False)}
    assert covered == wanted


@pytest.mark.parametrize("detector", [d for d in builtin().detectors if d.hint], ids=lambda d: d.id)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_hint_is_found_in_whatever_the_regex_matches(detector: Detector, data: st.DataObject):
    text = data.draw(st.from_regex(detector.pattern.encode()))
    match = compile_bytes(detector.pattern).search(text)
    assert match is None or compile_bytes(detector.hint).search(match.group()), text


def test_a_hint_is_found_in_every_positive_text(masker: Masker):
    # Hyperscan looks for the hint alone: a hint that misses would hide the finding.
    hinted = {d.id: (compile_bytes(d.hint), compile_bytes(d.pattern)) for d in builtin().detectors if d.hint}
    assert hinted
    for sample in SAMPLES:
        if sample.positive and sample.detector in hinted:
            hint, pattern = hinted[sample.detector]
            match = pattern.search(f'"{sample.text}"\n'.encode())
            assert match is None or hint.search(match.group()), sample.text


def test_no_detector_needs_more_than_the_overlap_of_blocks():
    for sample in SAMPLES:
        assert len(sample.text) < OVERLAP


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "badge"}, "id"),
        ({"id": "Custom.badge"}, "id"),
        ({"regex": "(?=x)y"}, "RE2 refuses"),
        ({"regex": "a*"}, "empty string"),
        ({"regex": "("}, "RE2 refuses"),
        ({"group": 1}, "group 1"),
        ({"validator": "guess"}, "unknown validator"),
        ({"entropy": 9}, "entropy"),
        ({"allow": ["["]}, "RE2 refuses"),
        ({"hint": "("}, "RE2 refuses"),
        ({"surprise": True}, "surprise"),
        ({"keywords": [""]}, "keywords"),
    ],
)
def test_a_malformed_detector_is_refused_with_its_name_and_fault(change: dict, message: str):
    with pytest.raises(PolicyError, match=message) as caught:
        parse_detector({**CUSTOM, **change})
    assert "detector" in str(caught.value)


@pytest.mark.parametrize("detector", builtin().detectors, ids=lambda detector: detector.id)
def test_a_search_gives_the_spans_that_re2_gives(detector: Detector):
    text = (
        b" 4111 1111 1111 1111, AKIA"
        b"IOSFODNN7EXAMPLE 756.1234.5678.97 184127645108946 password: x1y2z3w4;4111111111111111"
    )
    search, compiled = compile_search(detector.pattern), compile_bytes(detector.pattern)
    for data in (text, text[1:], text[22:], text[22:] * 2):
        for position in (0, 1, 20):
            match = compiled.search(data, position, len(data))
            groups = range(compiled.groups + 1)
            expected = [match.span(group) for group in groups] if match else [(-1, -1)] * len(groups)
            assert search(data, position, len(data)) == expected


@pytest.mark.parametrize(
    ("regex", "longest"),
    [
        ("npm_[A-Za-z0-9]{36}", 40),
        (r"\b(?:ab|cde){2,3}\b", 9),
        ("(?i)key[=:]?x", 5),
        ("a*", None),
        ("ab{2,}", None),
        ("a{,2}", None),  # five characters of text to RE2
        ("[[:digit:]]{9}", None),
        (r"\pN{3}", None),
    ],
)
def test_the_greatest_length_of_a_match_is_told_where_it_has_one(regex: str, longest: int | None):
    compile_bytes(regex)
    assert longest_match(regex) == longest


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([each for each in builtin().detectors if longest_match(each.pattern)]), st.data())
def test_no_match_is_longer_than_it_may_be(detector: Detector, data: st.DataObject):
    text = data.draw(st.from_regex(detector.pattern.encode()))
    match = compile_bytes(detector.pattern).search(text * 3)
    assert match is None or len(match.group()) <= (longest_match(detector.pattern) or 0)
