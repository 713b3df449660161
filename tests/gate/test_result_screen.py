"""Screening of results: what a client would drop for what was cut from it is withheld instead."""

from __future__ import annotations

from tests.gate.test_incoming import ORDER, World, rules, text
from tests.support.gate_fixture import denial_of


def structured(value: str) -> dict[str, object]:
    return {"content": [], "structuredContent": {"note": value}}


async def test_a_cut_that_breaks_the_output_schema_withholds_the_result(tmp_path):
    world = World(tmp_path, rules("id: s, action: strip, on: [results]"))
    short = {"type": "object", "properties": {"note": {"type": "string", "enum": [ORDER, "x"]}}}
    await world.answer("tools/list", {}, {"tools": [{"name": "read", "outputSchema": short}]})
    assert denial_of(await world.call(structured(ORDER)))["reason"] == "injected_instructions"


async def test_a_cut_that_keeps_the_output_schema_passes(tmp_path):
    world = World(tmp_path, rules("id: s, action: strip, on: [results]"))
    free = {"type": "object", "properties": {"note": {"type": "string"}}}
    await world.answer("tools/list", {}, {"tools": [{"name": "read", "outputSchema": free}]})
    assert "evil" not in str((await world.call(structured(ORDER)))["result"]["structuredContent"])


async def test_rules_name_tools(tmp_path):
    world = World(tmp_path, rules("id: w, action: withhold, tools: [other]"))
    assert (await world.call(text(ORDER)))["result"] == text(ORDER)
