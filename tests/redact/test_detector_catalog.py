"""The catalog of detectors knows names, and what makes a good detector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.errors import PolicyError
from proxy.redact import Masker, builtin, detector_catalog, hyperscan_db
from proxy.redact.detector_catalog import encode_catalog, parse_catalog

GOOD = {"id": "custom.badge", "description": "Badge", "regex": r"BADGE-\d{6}"}


@pytest.mark.parametrize("name", ["secrets", "pii", "custom", "pii.card", "secrets.aws-access-key"])
def test_families_and_built_in_ids_are_known(name: str):
    assert builtin().knows(name)


@pytest.mark.parametrize("name", ["", "secret", "pii.", "card", "custom.badge"])
def test_nothing_else_is(name: str):
    assert not builtin().knows(name)


def test_a_good_detector_meets_no_objection():
    assert builtin().objections(GOOD) == []


def test_an_objection_names_the_field():
    [objection] = builtin().objections({**GOOD, "validator": "guess"})
    assert objection.field == ("validator",)
    assert objection.message.startswith("unknown validator 'guess'")


@pytest.mark.parametrize(("more", "field"), [({}, "regex"), ({"hint": "BADGE"}, "hint")])
def test_what_hyperscan_refuses_is_an_objection(more: dict, field: str, monkeypatch: pytest.MonkeyPatch):
    hyperscan = pytest.importorskip("hyperscan", reason="no hyperscan for this platform")

    def refuse(*_: object) -> None:
        raise hyperscan.error("Pattern is too large.")

    monkeypatch.setattr(hyperscan_db, "compile_all", refuse)
    [objection] = builtin().objections({**GOOD, **more})
    assert objection.field == (field,)
    assert "Pattern is too large" in objection.message


def test_without_hyperscan_nothing_is_asked_of_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(detector_catalog, "AVAILABLE", False)
    assert builtin().objections(GOOD) == []


def test_what_a_start_reads_is_what_the_yaml_says():
    folder = Path(detector_catalog.__file__).parent
    text = (folder / "detectors.yaml").read_bytes()
    current = (folder / "detectors.json").read_text() == encode_catalog(text)
    assert current, "run python scripts/detector_data.py"
    kept, read = builtin().detectors, parse_catalog(text).detectors
    assert [vars(one) for one in kept] == [vars(one) for one in read]


def test_detectors_that_changed_since_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "detectors.yaml").write_text(json.dumps({"fragments": {}, "detectors": [GOOD]}))
    (tmp_path / "detectors.json").write_text(encode_catalog(b"{fragments: {}, detectors: []}"))
    monkeypatch.setattr(detector_catalog, "files", lambda _: tmp_path)
    assert [detector.id for detector in builtin.__wrapped__().detectors] == ["custom.badge"]


def test_there_are_at_least_sixty_kinds_of_secret():
    assert len(builtin().select(["secrets"])) >= 60


def test_a_family_selects_its_detectors_and_nothing_else():
    catalog = builtin()
    ids = {catalog.detectors[index].id for index in catalog.select(["pii"])}
    assert "pii.card" in ids
    assert all(name.startswith("pii.") for name in ids)


def test_an_id_selects_itself_alone():
    catalog = builtin()
    assert [catalog.detectors[index].id for index in catalog.select(["pii.us-ssn"])] == ["pii.us-ssn"]


@pytest.mark.parametrize("name", ["secret", "pii.", "", "secrets.aws", "*"])
def test_a_name_that_selects_nothing_is_refused(name: str):
    with pytest.raises(PolicyError, match="unknown detector"):
        builtin().select([name])


def test_a_custom_detector_is_found_and_named_in_the_mask():
    masker = Masker(b"a key for tests alone", builtin().extended([GOOD]))
    masked, findings = masker.mask({"who": "BADGE-123456"}, ["custom"])
    assert masked["who"].startswith("[custom:badge:")
    assert [finding.detector for finding in findings] == ["custom.badge"]


def test_an_id_that_is_taken_is_refused():
    with pytest.raises(PolicyError, match="defined twice"):
        builtin().extended([{**GOOD, "id": "secrets.jwt"}])


def test_no_custom_detectors_leave_the_catalog_as_it_is():
    assert builtin().extended([]) is builtin()
