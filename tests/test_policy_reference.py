"""docs/policy-reference.md says what the models say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.policy.rules import PolicyFile
from scripts import policy_reference
from scripts.policy_reference import PAGE, Reference, main

SCHEMA = PolicyFile.model_json_schema(by_alias=True)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == Reference(SCHEMA).text(), "run python scripts/policy_reference.py"


def test_every_field_says_what_it_is_for() -> None:
    models: dict[str, Any] = {"PolicyFile": SCHEMA, **SCHEMA["$defs"]}
    silent = [
        f"{name}.{field}"
        for name, model in models.items()
        for field, each in model.get("properties", {}).items()
        if not each.get("description")
    ]
    assert silent == []
    assert [name for name, model in models.items() if "properties" in model and not model.get("description")] == []


def test_links_lead_to_headings() -> None:
    text = PAGE.read_text()
    headings = {line[3:].lower().replace(":", "").replace(" ", "-") for line in text.splitlines() if line[:3] == "## "}
    links = {part.partition(")")[0] for part in text.split("](#")[1:]}
    assert links
    assert links <= headings


def test_a_page_that_is_not_current_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_reference, "PAGE", tmp_path / "page.md")
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_a_model_without_a_place_on_the_page_is_an_error() -> None:
    grown = {**SCHEMA, "$defs": {**SCHEMA["$defs"], "Brand": {"properties": {}}}}
    with pytest.raises(KeyError, match="Brand"):
        Reference(grown).text()
