"""Inputs with the words that hidden deeds wait for."""

from __future__ import annotations

from typing import Any

from proxy.probe.synthesise import SampleFiles
from proxy.probe.waited_words import WORDS, waited_words

SAMPLES = SampleFiles("/h/documents/notes.md", "/h/documents/b.txt", "/h/documents", "/h/repo", "/h/documents/new.txt")


def made(**properties: Any) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return [each.arguments for each in waited_words({"name": "t", "inputSchema": schema}, SAMPLES)]


def test_each_free_text_is_such_a_word_and_all_else_stays() -> None:
    found = made(name={"type": "string"}, note={"type": "string"}, count={"type": "integer"}, path={"type": "string"})
    assert [each["name"] for each in found] == list(WORDS)
    assert all(each["name"] == each["note"] for each in found)
    assert {each["path"] for each in found} < {SAMPLES.file, SAMPLES.other_file}
    assert all(isinstance(each["count"], int) for each in found)


def test_only_valid_inputs_are_made() -> None:
    short = made(name={"type": "string", "maxLength": 5})
    assert {each["name"] for each in short} == {word for word in WORDS if len(word) <= 5}


def test_a_tool_without_free_texts_waits_for_no_word() -> None:
    assert made() == []
    assert made(kind={"enum": ["a", "b"]}, day={"type": "string", "format": "date"}, size={"type": "integer"}) == []
    assert waited_words({"name": "t", "inputSchema": 3}, SAMPLES) == ()
