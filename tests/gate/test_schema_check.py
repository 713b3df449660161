"""A mask that a schema would not take is told from one that it would."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gate.schema_check import MAX_WORK, still_fits

MASK = "[secret:github-token:3f9a]"
TEXT = {"type": "string"}
STRICT = {"type": "string", "pattern": "^ghp_[A-Za-z0-9]{36}$"}
SECRET = "ghp_" + "Zx8Kq2" * 6


def fits(schema: Any, before: Any = SECRET, after: Any = MASK) -> bool:
    """Judge a masked leaf `x` of an object."""
    return still_fits({"type": "object", "properties": {"x": schema}}, {"x": before, "n": 1}, {"x": after, "n": 1})


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        TEXT,
        {"type": ["string", "null"]},
        {"type": "string", "maxLength": 100, "minLength": 3, "description": "A token", "examples": [1]},
        {"type": "string", "pattern": "^\\["},
        {"type": "string", "format": "password"},
        {"enum": ["a", MASK]},
        {"anyOf": [TEXT, {"type": "null"}]},
        {"anyOf": [STRICT, TEXT]},
        {"oneOf": [TEXT, {"type": "null"}]},
        {"allOf": [TEXT, {"maxLength": 30}]},
        {"$ref": "#/properties/x/$defs/y~1z", "$defs": {"y/z": TEXT}},
    ],
)
def test_a_mask_fits_where_any_text_does(schema: Any):
    assert fits(schema)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        "odd",
        STRICT,
        {"enum": ["a", "b"]},
        {"enum": "odd"},
        {"const": SECRET},
        {"format": "uri"},
        {"format": ["uri"]},
        {"maxLength": 10},
        {"maxLength": "10"},
        {"minLength": 40},
        {"contentEncoding": "base64"},
        {"type": "integer"},
        {"pattern": "(?=look)around"},
        {"pattern": 5},
        {"pattern": ["x"]},
        {"allOf": [TEXT, STRICT]},
        {"anyOf": [STRICT, {"type": "null"}]},
        {"anyOf": {}},
        {"oneOf": [TEXT, {"minLength": 1}]},
        {"oneOf": [STRICT, {"format": "uri"}]},
        {"not": {"const": "x"}},
        {"if": True, "then": STRICT},
        {"if": True, "else": STRICT},
        {"$ref": "#/properties/x/$defs/y", "$defs": {"y": STRICT}},
        {"$ref": "#/nowhere"},
        {"$ref": "#nowhere"},
        {"$ref": "https://example.com/schema"},
        {"$ref": 1},
        {"$ref": "#/properties/x"},
        {"$dynamicRef": "#x"},
    ],
)
def test_a_mask_does_not_fit_what_constrains_it_or_cannot_be_read(schema: Any):
    assert not fits(schema)


LISTS = [
    ({"items": STRICT}, False),
    ({"items": TEXT}, True),
    ({"prefixItems": [TEXT, STRICT]}, False),
    ({"prefixItems": [STRICT, TEXT], "items": STRICT}, True),
    ({"prefixItems": [TEXT], "items": STRICT}, False),
    ({"items": [STRICT], "additionalItems": STRICT}, False),
    ({"items": [STRICT, TEXT], "additionalItems": STRICT}, True),
    ({"contains": STRICT}, False),
    ({"unevaluatedItems": STRICT}, False),
    ({"items": TEXT, "unevaluatedItems": False}, True),
    ({"const": ["a", SECRET]}, False),
    ({"enum": [["a", SECRET]]}, False),
]


@pytest.mark.parametrize(("schema", "taken"), LISTS)
def test_elements_are_judged_by_what_is_said_of_their_place(schema: Any, taken: bool):
    assert still_fits(schema, ["a", SECRET], ["a", MASK]) is taken


OBJECTS = [
    ({"additionalProperties": STRICT}, False),
    ({"additionalProperties": TEXT}, True),
    ({"properties": {"x": TEXT}, "additionalProperties": STRICT}, True),
    ({"patternProperties": {"^x": STRICT}}, False),
    ({"patternProperties": {"^y": STRICT}}, True),
    ({"patternProperties": {"(?!a)x": STRICT}}, False),
    ({"patternProperties": {"^x": TEXT}, "additionalProperties": False}, True),
    ({"unevaluatedProperties": STRICT}, False),
    ({"dependentSchemas": {"n": {"properties": {"x": STRICT}}}}, False),
    ({"allOf": [{"properties": {"x": STRICT}}]}, False),
    (
        {"anyOf": [{"properties": {"kind": {"const": "a"}, "x": STRICT}}, {"properties": {"kind": {"const": "b"}}}]},
        True,
    ),
    (
        {"anyOf": [{"properties": {"kind": {"const": "b"}, "x": STRICT}}, {"properties": {"kind": {"const": "a"}}}]},
        False,
    ),
    ({"oneOf": [{"type": "null"}, {"required": ["gone"], "properties": {"x": STRICT}}]}, True),
    ({"anyOf": [{"$ref": "#/$defs/s"}], "$defs": {"s": {"properties": {"x": STRICT}}}}, False),
    ({"not": {"properties": {"y": STRICT}}}, True),
    ({"properties": "odd", "required": 5, "patternProperties": []}, True),
]


@pytest.mark.parametrize(("schema", "taken"), OBJECTS)
def test_members_are_judged_by_what_is_said_of_their_name(schema: Any, taken: bool):
    before, after = {"kind": "b", "x": SECRET, "n": 1}, {"kind": "b", "x": MASK, "n": 1}
    assert still_fits(schema, before, after) is taken


KEYS = [
    ({}, True),
    ({"additionalProperties": TEXT}, True),
    ({"additionalProperties": False}, False),
    ({"properties": {SECRET: TEXT}}, False),
    ({"required": [SECRET]}, False),
    ({"propertyNames": STRICT}, False),
    ({"propertyNames": {"minLength": 1}}, True),
    ({"patternProperties": {"^g": TEXT}}, False),
    ({"required": 5}, True),
]


@pytest.mark.parametrize(("schema", "taken"), KEYS)
def test_a_masked_key_fits_where_any_name_does(schema: Any, taken: bool):
    assert still_fits(schema, {SECRET: "v", "n": 1}, {MASK: "v", "n": 1}) is taken


def test_only_what_changed_is_judged():
    same = {"y": "not what it should be"}
    schema = {"properties": {"a": {"properties": {"y": {"const": "other"}}}, "x": TEXT}}
    assert still_fits(schema, {"a": same, "x": SECRET}, {"a": same, "x": MASK})


def test_a_value_of_another_shape_does_not_fit():
    assert not still_fits({}, {"x": SECRET}, ["x"])
    assert not still_fits({}, ["a", "b"], ["a"])


def test_text_that_is_no_unicode_does_not_fit_a_pattern():
    assert not fits({"pattern": "x"}, after="x\ud800")


def bomb(width: int, depth: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, depth):
        defs[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * width}
    return {"$ref": f"#/$defs/d{depth - 1}", "$defs": defs}


def test_a_schema_made_to_take_long_is_given_up_soon():
    started = time.process_time()
    assert not still_fits(bomb(10, 12), SECRET, MASK)
    assert time.process_time() - started < 2


def test_a_schema_that_leads_round_is_given_up():
    assert not still_fits({"$ref": "#"}, SECRET, MASK)
    assert not still_fits({"anyOf": [{"$ref": "#"}]}, {"x": SECRET}, {"x": MASK})


def test_long_text_before_many_patterns_is_given_up_soon():
    schema = {"allOf": [{"pattern": "x.*y"}] * 500}
    started = time.process_time()
    assert not still_fits(schema, SECRET, "x" * (MAX_WORK * 512) + "y")
    assert time.process_time() - started < 5


def test_many_masks_in_a_plain_schema_are_fine():
    schema = {"type": "array", "items": {"type": "object", "properties": {"mail": TEXT}}}
    before, after = [[{"mail": text} for _ in range(5000)] for text in (SECRET, MASK)]
    assert still_fits(schema, before, after)


words = st.text(max_size=4) | st.integers() | st.booleans() | st.none()
NAMES = ["type", "enum", "const", "$ref", "anyOf", "allOf", "items", "properties", "required", "pattern", "x", "not"]
schemas = st.recursive(
    words,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "x", "not"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(schemas)
def test_whatever_a_server_calls_a_schema_is_answered(schema: Any):
    assert still_fits(schema, {"x": [SECRET], SECRET: 1}, {"x": [MASK], MASK: 1}) in (True, False)
    assert still_fits(schema, SECRET, MASK) in (True, False)
