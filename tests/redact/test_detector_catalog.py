"""The book of detectors knows names, and what makes a good detector."""

from __future__ import annotations

import pytest

from proxy.redact import Book, detector_catalog, hyperscan_db

GOOD = {"id": "custom.badge", "description": "Badge", "regex": r"BADGE-\d{6}"}


@pytest.mark.parametrize("name", ["secrets", "pii", "custom", "pii.card", "secrets.aws-access-key"])
def test_families_and_built_in_ids_are_known(name: str):
    assert Book().knows(name)


@pytest.mark.parametrize("name", ["", "secret", "pii.", "card", "custom.badge"])
def test_nothing_else_is(name: str):
    assert not Book().knows(name)


def test_a_good_detector_meets_no_objection():
    assert Book().objections(GOOD) == []


def test_an_objection_names_the_field():
    [objection] = Book().objections({**GOOD, "validator": "guess"})
    assert objection.field == ("validator",)
    assert objection.message.startswith("unknown validator 'guess'")


@pytest.mark.parametrize(("more", "field"), [({}, "regex"), ({"hint": "BADGE"}, "hint")])
def test_what_hyperscan_refuses_is_an_objection(more: dict, field: str, monkeypatch: pytest.MonkeyPatch):
    hyperscan = pytest.importorskip("hyperscan", reason="no hyperscan for this platform")

    def refuse(_: list[str]) -> None:
        raise hyperscan.error("Pattern is too large.")

    monkeypatch.setattr(hyperscan_db, "compile_all", refuse)
    [objection] = Book().objections({**GOOD, **more})
    assert objection.field == (field,)
    assert "Pattern is too large" in objection.message


def test_without_hyperscan_nothing_is_asked_of_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(detector_catalog, "AVAILABLE", False)
    assert Book().objections(GOOD) == []
