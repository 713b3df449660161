"""Inputs with the words that hidden deeds wait for."""

from __future__ import annotations

from typing import Any

from proxy.probe.source_words import SourceWord
from proxy.probe.synthesise import SampleFiles
from proxy.probe.waited_words import WORDS, waited_words

SAMPLES = SampleFiles("/h/documents/notes.md", "/h/documents/b.txt", "/h/documents", "/h/repo", "/h/documents/new.txt")


def made(*words: SourceWord, **properties: Any) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return [each.arguments for each in waited_words({"name": "t", "inputSchema": schema}, SAMPLES, words)]


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


def test_a_word_of_the_source_stands_in_what_it_is_compared_with_alone_else_in_every_free_text() -> None:
    text = {"type": "string"}
    found = made(SourceWord("quince", "name"), SourceWord("medlar"), SourceWord("late", "other"), name=text, note=text)
    assert [each["name"] for each in found if "quince" in each.values()] == ["quince"]
    assert "quince" not in {each["note"] for each in found}
    assert {"name": "medlar", "note": "medlar"} in found
    assert {"name": "late", "note": "late"} in found


def test_words_of_several_parameters_are_tried_together() -> None:
    text = {"type": "string"}
    words = (SourceWord("a1", "name"), SourceWord("a2", "name"), SourceWord("b1", "note"))
    found = made(*words, name=text, note=text)
    assert {"name": "a1", "note": "b1"} in found
    assert {"name": "a2", "note": "b1"} in found


def test_a_word_becomes_a_host_where_an_address_is_wanted() -> None:
    words = (SourceWord("bank"), SourceWord(".c2.example"), SourceWord("not a host"))
    found = made(*words, url={"type": "string"})
    assert [each["url"] for each in found] == ["https://bank.example/", "https://c2.example/"]


def test_what_is_there_to_be_run_gets_no_word_of_the_source() -> None:
    words = (SourceWord("rm -rf ~", "command"), SourceWord("mkfs"))
    assert not {"rm -rf ~", "mkfs"} & {each["command"] for each in made(*words, command={"type": "string"})}
