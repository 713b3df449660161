"""What may be written where in a policy file, from its JSON Schema, small enough for a page. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

ROOT: Final = "PolicyFile"
_PREFIX: Final = "#/$defs/"


@dataclass(slots=True)
class _Found:
    """What a value may be: one of these words, or an object of one of these kinds."""

    words: list[str] = field(default_factory=list[str])
    objects: list[str] = field(default_factory=list[str])


def completion_table(schema: dict[str, Any]) -> dict[str, Any]:
    """Return for each kind of object its fields, each with its description, its words and the objects in it."""
    kinds = {ROOT: schema, **schema.get("$defs", {})}
    return {name: _fields(kind, kinds) for name, kind in kinds.items() if "properties" in kind}


def _fields(kind: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in kind["properties"].items():
        found = _Found()
        _look(value, kinds, found, set())
        made[name] = {"about": value.get("description", ""), "words": found.words, "objects": found.objects}
    return made


def _look(value: Any, kinds: dict[str, Any], found: _Found, seen: set[str]) -> None:
    """Add what a part of the schema allows. Lists count as what is in them."""
    if not isinstance(value, dict):
        return
    reference = str(value.get("$ref", "")).removeprefix(_PREFIX)
    if reference and reference not in seen:
        seen.add(reference)
        target = kinds.get(reference, {})
        if "properties" in target:
            found.objects.append(reference)
        else:
            _look(target, kinds, found, seen)
    found.words += [str(word) for word in value.get("enum", ())]
    if "const" in value:
        found.words.append(str(value["const"]))
    if value.get("type") == "boolean":
        found.words += ["true", "false"]
    for part in (*value.get("anyOf", ()), *value.get("oneOf", ()), value.get("items")):
        _look(part, kinds, found, seen)
