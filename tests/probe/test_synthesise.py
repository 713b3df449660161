"""Arguments made from schemas: valid, different, and pointing at what is there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proxy.probe.synthesise import Input, SampleFiles, synthesise

SAMPLES = SampleFiles(
    "/h/documents/notes.md", "/h/documents/report.txt", "/h/documents", "/h/sample", "/h/documents/new.txt"
)


def make(properties: dict[str, Any], required: list[str] | None = None, name: str = "tool", **rest: Any) -> list[Input]:
    schema = {"type": "object", "properties": properties, "required": required or [], **rest}
    inputs = synthesise({"name": name, "inputSchema": schema}, SAMPLES)
    for each in inputs:
        Draft202012Validator(schema).validate(each.arguments)
    return list(inputs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "/h/documents/notes.md"),
        ("fileName", "/h/documents/notes.md"),
        ("directory", "/h/documents"),
        ("repo_path", "/h/sample"),
        ("destination", "/h/documents/new.txt"),
        ("url", "http://probe.example/page"),
        ("source_timezone", "Europe/Berlin"),
        ("email", "someone@example.org"),
        ("branch_name", "feature"),
        ("expression", "1 + 1"),
        ("userRole", "user"),
        ("document_id", "1"),
        ("order_by", "name"),
        ("username", "alex"),
        ("module_name", "json"),
        ("config_json", '{"name": "sample"}'),
    ],
)
def test_a_name_tells_what_is_meant(name: str, value: str) -> None:
    assert make({name: {"type": "string"}}, [name])[0].arguments == {name: value}


def test_items_of_no_type_are_numbers_where_their_name_says_so() -> None:
    made = make({"numbers": {"type": "array"}, "names": {"type": "array"}}, ["numbers", "names"])
    assert made[0].arguments == {"numbers": [1], "names": ["sample"]}


def test_a_description_tells_it_too() -> None:
    made = make({"what": {"type": "string", "description": "Absolute path of the file to format"}}, ["what"])
    assert made[0].arguments == {"what": "/h/documents/notes.md"}


def test_a_tool_for_folders_is_pointed_at_a_folder() -> None:
    assert make({"path": {"type": "string"}}, ["path"], "list_directory")[0].arguments == {"path": "/h/documents"}


def test_files_beside_a_repository_are_the_repositorys() -> None:
    files = {"type": "array", "items": {"type": "string"}}
    made = make({"repo_path": {"type": "string"}, "files": files}, ["repo_path", "files"])
    assert made[0].arguments["files"] == ["README.md"]


def test_what_is_required_all_there_is_and_other_values_are_tried() -> None:
    made = make({"a": {"type": "string"}, "b": {"type": "integer", "minimum": 5}}, ["a"])
    assert [each.label for each in made] == ["required", "all", "other"]
    assert set(made[0].arguments) == {"a"}
    assert made[1].arguments["b"] == 5
    assert made[2].arguments["a"] != made[1].arguments["a"]


def test_every_choice_is_tried() -> None:
    made = make({"mode": {"enum": ["a", "b", "c", "d"]}}, ["mode"])
    assert {each.arguments["mode"] for each in made} == {"a", "b", "c", "d"}


def test_two_inputs_are_never_the_same() -> None:
    made = make({"n": {"const": 1}}, ["n"])
    assert [each.arguments for each in made] == [{"n": 1}]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "minLength": 200},
        {"type": "string", "maxLength": 2},
        {"type": "integer", "multipleOf": 7, "minimum": 50, "maximum": 60},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        {"type": "number", "maximum": -3},
        {"type": ["null", "string"]},
        {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        {"allOf": [{"type": "object", "required": ["x"]}, {"properties": {"x": {"type": "boolean"}}}]},
        {"$ref": "#/$defs/point"},
        {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 2},
        {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2},
        {"type": "array", "maxItems": 0},
        {},
    ],
)
def test_what_is_made_is_valid(schema: dict[str, Any]) -> None:
    point = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat", "lon"]}
    assert make({"value": schema}, ["value"], **{"$defs": {"point": point}})


@pytest.mark.parametrize(
    "tool",
    [
        {},
        {"inputSchema": None},
        {"inputSchema": {"properties": []}},
        {"inputSchema": {"properties": {"a": True}, "required": ["a", 1]}},
        {"inputSchema": {"$ref": "#"}},
        {"inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}},
        {"inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://x.example/s"}}, "required": ["a"]}},
        {"inputSchema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}, "required": ["a"]}},
        {"inputSchema": {"type": "wrong"}},
    ],
)
def test_an_odd_schema_stops_nobody(tool: dict[str, Any]) -> None:
    for each in synthesise(tool, SAMPLES):
        assert json.dumps(each.arguments)


@pytest.mark.parametrize(
    "property_",
    [
        {"type": "string", "minLength": 10**12},
        {"type": "array", "minItems": 10**12, "items": {"type": "string"}},
        {"type": "integer", "minimum": 10**5000},
        {"type": "number", "multipleOf": 1e-300, "minimum": 1e300},
    ],
    ids=lambda schema: next(iter(schema.values())),
)
def test_a_schema_past_all_bounds_holds_nobody_up(property_: dict[str, Any]) -> None:
    tool = {"name": "x", "inputSchema": {"type": "object", "properties": {"a": property_}, "required": ["a"]}}
    assert all(len(str(each.arguments)) < 1 << 17 for each in synthesise(tool, SAMPLES))


def test_of_a_schema_that_is_too_large_nothing_is_made() -> None:
    names = [f"k{number}" for number in range(200_000)]
    tool = {"name": "x", "inputSchema": {"type": "object", "properties": {}, "required": names}}
    assert [each.arguments for each in synthesise(tool, SAMPLES)] == [{}]


def test_a_schema_that_contains_itself_comes_to_an_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
    assert synthesise({"inputSchema": {"$ref": "#/$defs/node", "$defs": {"node": node}}}, SAMPLES) is not None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["string", "object", "array", "#/a", "integer"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "items", "anyOf", "enum", "$ref", "pattern", "minimum"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_no_schema_raises(schema: Any) -> None:
    synthesise({"name": "x", "inputSchema": {"properties": {"a": schema}, "required": ["a"]}}, SAMPLES)


def test_what_a_description_lists_is_tried_and_a_text_that_it_does_not_list() -> None:
    described = "Show the logs.\n\nArgs:\n    kind: Which ones (system, access, error)\n"
    tool = {"description": described, "inputSchema": {"properties": {"kind": {"type": "string"}}, "required": ["kind"]}}
    made = [each.arguments["kind"] for each in synthesise(tool, SAMPLES)]
    assert made == ["system", "access", "error", "A short note about the meeting on Monday"]


def test_a_listed_word_that_a_schema_forbids_is_not_tried() -> None:
    made = make({"kind": {"type": "string", "description": "(system, access)", "maxLength": 6}}, ["kind"])
    assert [each.arguments["kind"] for each in made] == ["system", "access"]


def test_an_example_of_a_file_does_not_replace_a_file_that_is_there() -> None:
    made = make({"filename": {"type": "string", "description": "such as 'welcome.txt'"}}, ["filename"])
    assert made[0].arguments == {"filename": "/h/documents/notes.md"}


def test_an_identifier_has_the_choices_that_are_listed() -> None:
    made = make({"service_id": {"type": "string", "description": "Which service (mail, storage)"}}, ["service_id"])
    assert made[0].arguments == {"service_id": "mail"}


def test_examples_are_tried_where_a_name_tells_nothing() -> None:
    said = {"type": "string", "description": "What to look at (e.g., 'engine', 'wheels')"}
    assert [each.arguments["part"] for each in make({"part": said}, ["part"])][:2] == ["engine", "wheels"]
    assert make({"timezone": said}, ["timezone"])[0].arguments == {"timezone": "Europe/Berlin"}
