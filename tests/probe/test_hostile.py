"""Inputs of a malicious caller: for which parameters they are made, and that they are valid and prove something."""

from __future__ import annotations

import base64
import pickle
import re
from typing import Any

import pytest

from proxy.probe.hostile import (
    ENTITY,
    LARGER,
    MANY,
    MAX_CALLS,
    MAX_PARAMETERS,
    MODULE,
    Attempt,
    Bait,
    attempts,
    bait_files,
    crowds,
    marker,
    takes_sql,
)
from proxy.probe.synthesise import SampleFiles

SAMPLES = SampleFiles("/h/documents/notes.md", "/h/documents/b.txt", "/h/documents", "/h/repo", "/h/documents/new.txt")
BAIT = Bait("/h/.ssh/id_rsa", ("/h/documents/extras/extension.py",), "qtoken")


def tool(description: str = "Shows a note", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": "show", "description": description, "inputSchema": schema}


def made(description: str = "Shows a note", **properties: Any) -> tuple[Attempt, ...]:
    return attempts(tool(description, **properties), SAMPLES, BAIT)


def labels(found: tuple[Attempt, ...]) -> set[str]:
    return {each.label for each in found}


def test_a_text_is_tried_as_a_command_as_code_as_a_template_and_as_a_path() -> None:
    found = made(title={"type": "string"})
    assert {"a command of a shell", "code", "an expression in a template", "a path that leads up"} <= labels(found)
    assert {each.parameter for each in found} == {"title"}
    runs = [each for each in found if each.proof == "ran"]
    assert all(each.token in str(each.arguments["title"]) for each in runs)
    assert len({each.token for each in runs}) == len(runs)


def test_a_product_is_what_the_numbers_make_and_is_not_in_the_input() -> None:
    shown = [each for each in made(title={"type": "string"}) if each.label == "an expression in a template"]
    assert shown
    for each in shown:
        one, other = re.findall(r"[0-9]+", each.arguments["title"])
        assert int(one) * int(other) == int(each.token)
        assert each.token not in each.arguments["title"]


def test_a_parameter_that_is_there_to_be_run_is_asked_for_a_secret_instead() -> None:
    found = made(command={"type": "string"})
    assert "a command of a shell" not in labels(found)
    assert any(each.arguments["command"] == f"cat {BAIT.secret}" and each.token == BAIT.secret for each in found)


def test_who_says_that_it_fills_in_templates_is_not_asked_for_a_product() -> None:
    found = made("Renders a template", text={"type": "string"})
    assert "an expression in a template" not in labels(found)
    assert "an attribute in a format" in labels(found)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("plugin_path", "a file with code"),
        ("module_name", "the name of a module"),
        ("encoded", "code in base64"),
        ("url", "the address of a cloud's metadata"),
    ],
)
def test_names_of_parameters_decide_what_else_is_tried(name: str, label: str) -> None:
    assert label in labels(made(**{name: {"type": "string"}}))
    assert label not in labels(made(title={"type": "string"}))


def test_only_valid_inputs_are_sent_and_not_too_many() -> None:
    assert made(kind={"type": "string", "enum": ["a", "b"]}) == ()
    assert made(count={"type": "integer"}) == ()
    assert all(len(each.arguments["title"]) <= 20 for each in made(title={"type": "string", "maxLength": 20}))
    many = {f"text{number}": {"type": "string"} for number in range(30)}
    assert len(made(**many)) <= MAX_CALLS
    assert len({each.parameter for each in made(**many)}) == MAX_PARAMETERS


def test_a_list_of_texts_is_tried_too() -> None:
    found = made(names={"type": "array", "items": {"type": "string"}})
    assert any(each.label == "a command of a shell" and isinstance(each.arguments["names"], list) for each in found)


def test_lists_grow() -> None:
    (found,) = crowds(tool(items={"type": "array", "items": {"type": "string"}}), SAMPLES)
    assert len(found.arguments["items"]) == MANY
    assert crowds(tool(title={"type": "string"}), SAMPLES) == ()


def test_numbers_grow_as_far_as_they_may() -> None:
    (found,) = crowds(tool(n={"type": "integer"}, on={"type": "boolean"}), SAMPLES)
    assert found.arguments["n"] == LARGER
    assert isinstance(found.arguments["on"], bool)
    assert crowds(tool(n={"type": "integer", "maximum": 10}), SAMPLES) == ()


@pytest.mark.parametrize(
    ("name", "description", "properties", "takes"),
    [
        ("run", "Runs it", {"sql": {"type": "string"}}, True),
        ("read_query", "Execute a SELECT query on the SQLite database", {"query": {"type": "string"}}, True),
        ("find", "Finds users in the database", {"name": {"type": "string"}}, False),
        ("search", "Searches notes", {"query": {"type": "string"}}, False),
        ("odd", "SQL", "properties", False),
    ],
)
def test_who_runs_any_query_has_none_to_be_escaped_from(
    name: str, description: str, properties: Any, takes: bool
) -> None:
    definition = {"name": name, "description": description, "inputSchema": {"properties": properties}}
    assert takes_sql(definition) is takes
    tried = "a quotation mark in a query"
    assert tried in labels(made(title={"type": "string"}))
    assert tried not in labels(attempts(tool(title={"type": "string"}), SAMPLES, BAIT, sql=True))


def test_the_files_and_the_pickles_run_echo_with_their_token(tmp_path: Any) -> None:
    token = marker()
    for name, text in bait_files(token).items():
        assert token in text, name
    encoded = next(each for each in made(encoded={"type": "string"}) if each.label == "code in base64")
    assert encoded.token in base64.b64decode(encoded.arguments["encoded"]).decode()
    held = next(each for each in made(data={"type": "string"}) if each.label == "a pickle")
    assert pickle.loads(held.arguments["data"].encode("latin-1")) == 0
    compile(bait_files(token)["extension.py"], MODULE, "exec")


def test_each_text_is_tried_before_any_is_tried_again_with_other_values_beside_it() -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("page", "extra", "more", "most")},
        "required": ["page"],
    }
    found = attempts({"name": "show", "inputSchema": schema}, SAMPLES, BAIT)
    assert found[0].arguments.keys() == {"page"}  # the usual case: nothing else is switched on
    assert {each.parameter for each in found} == {"page", "extra", "more", "most"}


def test_a_document_in_xml_names_a_secret_and_a_host_of_nobody() -> None:
    found = [each for each in made(xml={"type": "string"}) if each.label == ENTITY]
    assert {each.proof for each in found} == {"opened", "reached"}
    assert all(each.token in each.arguments["xml"] for each in found)
    assert ENTITY not in labels(made(title={"type": "string"}))


def test_an_input_that_differs_in_nothing_but_the_tried_text_is_tried_once() -> None:
    found = made(title={"type": "string"})
    shown = [each.arguments["title"] for each in found if each.proof in ("opened", "complained")]
    assert len(shown) == len(set(shown))


def test_an_option_writes_to_a_file_that_nothing_else_names() -> None:
    found = [each for each in made(title={"type": "string"}) if each.proof == "wrote"]
    assert found
    assert all(each.arguments["title"].endswith(each.token) and each.token.startswith("/tmp/q") for each in found)
