"""Detectors as data: loading, choosing, custom ones, and each against its labelled texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import PolicyError
from proxy.redact import detectors
from proxy.redact.detectors import (
    Detector,
    builtin,
    compile_bytes,
    compile_search,
    parse_catalogue,
    parse_detector,
    spell_catalogue,
)
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
    found = {finding.detector for finding in masker.mask(sample.value, ("secrets", "pii"))[1]}
    assert (sample.detector in found) == sample.positive, sample.text


def test_every_detector_has_positives_and_near_misses():
    covered = {(sample.detector, sample.positive) for sample in SAMPLES}
    wanted = {(detector.id, kind) for detector in builtin().detectors for kind in (True, False)}
    assert covered == wanted


def test_what_a_start_reads_is_what_the_yaml_says():
    folder = Path(detectors.__file__).parent
    text = (folder / "detectors.yaml").read_bytes()
    current = (folder / "detectors.json").read_text() == spell_catalogue(text)
    assert current, "run python scripts/detector_data.py"
    kept, read = builtin().detectors, parse_catalogue(text).detectors
    assert [vars(one) for one in kept] == [vars(one) for one in read]


def test_detectors_that_changed_since_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "detectors.yaml").write_text(json.dumps([CUSTOM]))
    (tmp_path / "detectors.json").write_text(spell_catalogue(b"[]"))
    monkeypatch.setattr(detectors, "files", lambda _: tmp_path)
    assert [detector.id for detector in builtin.__wrapped__().detectors] == ["custom.badge"]


def test_there_are_at_least_sixty_kinds_of_secret():
    assert len(builtin().select(["secrets"])) >= 60


def test_a_family_selects_its_detectors_and_nothing_else():
    catalogue = builtin()
    ids = {catalogue.detectors[index].id for index in catalogue.select(["pii"])}
    assert "pii.card" in ids
    assert all(name.startswith("pii.") for name in ids)


def test_an_id_selects_itself_alone():
    catalogue = builtin()
    assert [catalogue.detectors[index].id for index in catalogue.select(["pii.us-ssn"])] == ["pii.us-ssn"]


@pytest.mark.parametrize("name", ["secret", "pii.", "", "secrets.aws", "*"])
def test_a_name_that_selects_nothing_is_refused(name: str):
    with pytest.raises(PolicyError, match="unknown detector"):
        builtin().select([name])


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


def test_a_custom_detector_is_found_and_named_in_the_mask():
    masker = Masker(b"a key for tests alone", builtin().extended([CUSTOM]))
    masked, findings = masker.mask({"who": "BADGE-123456"}, ["custom"])
    assert masked["who"].startswith("[custom:badge:")
    assert [finding.detector for finding in findings] == ["custom.badge"]


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


def test_an_id_that_is_taken_is_refused():
    with pytest.raises(PolicyError, match="defined twice"):
        builtin().extended([{**CUSTOM, "id": "secrets.jwt"}])


def test_no_custom_detectors_leave_the_catalogue_as_it_is():
    assert builtin().extended([]) is builtin()


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
