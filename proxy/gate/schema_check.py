"""Whether a masked value still validates against its JSON Schema. Pure; the work is bounded.

Only what the mask changed is checked. Schemas are a server's own words, so patterns are
RE2's, and what cannot be read, or takes too long, counts as not fitting.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from proxy.policy.regex import compile_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.core.model import Json, JsonObject

MAX_DEPTH: Final = 100
MAX_WORK: Final = 20_000
"""Subschemas to visit in one check; a kilobyte that a pattern is matched against counts as one."""

# Formats that every text satisfies.
_FREE_FORMATS: Final = ("text", "password", "path", "markdown", "binary")
_TOGETHER: Final = ("allOf", "if", "then", "else", "not")
_TYPES: Final = {"object": dict, "array": list, "string": str}


class _TooMuchError(Exception):
    """The check exceeds its bound on work."""


def still_fits(schema: Any, before: Json, after: Json) -> bool:
    """Return whether `after`, which is `before` masked, surely fits where `before` did. Never raises."""
    try:
        return _Fit(schema).holds(schema, before, after, 0)
    except (_TooMuchError, UnicodeError):  # a lone surrogate is no text to RE2
        return False


class _Fit:
    """One check of one value, with its work counted."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_WORK

    def holds(self, schema: Any, before: Any, after: Any, depth: int) -> bool:
        if before is after or schema is True or (isinstance(after, str) and before == after):
            return True
        self._spend(1, depth)
        if not isinstance(schema, dict):
            return False
        if isinstance(after, str):
            return self._takes_text(schema, after, depth) and self._is_taken_by_one(schema, after, depth)
        # The mask must have changed an object or an array inside, without making something else of it.
        inside = type(before) is type(after) and isinstance(after, dict | list) and len(before) == len(after)
        if not inside or "enum" in schema or "const" in schema:
            return False
        if isinstance(after, dict) and not self._may_rename(schema, before, after, depth):
            return False
        schemas = _members(schema, before, after) if isinstance(after, dict) else _elements(schema, after)
        children = zip(_children(before), _children(after), schemas, strict=True)
        # The alternatives that may have accepted the object or array.
        listed = (branch for name in ("anyOf", "oneOf") for branch in _listed(schema.get(name, [])))
        branches = (branch for branch in listed if self._may_take(branch, before, depth))
        return (
            all(self._all_hold(found, was, now, depth) for was, now, found in children if was is not now)
            and self._all_hold(self._beside(schema), before, after, depth)
            and self._all_hold(branches, before, after, depth)
        )

    def _all_hold(self, schemas: Any, before: Any, after: Any, depth: int) -> bool:
        return all(self.holds(schema, before, after, depth + 1) for schema in schemas)

    def _spend(self, work: int, depth: int) -> None:
        self._left -= work
        if self._left < 0 or depth > MAX_DEPTH:
            raise _TooMuchError

    def _beside(self, schema: JsonObject) -> Iterator[Any]:
        """Return the schemas that apply to the same value, negated ones included."""
        if "$ref" in schema:
            yield self._resolve(schema["$ref"])
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            yield False
        for name in _TOGETHER:
            if name in schema:
                found = schema[name]
                yield from found if isinstance(found, list) else (found,)
        dependent = schema.get("dependentSchemas")
        yield from dependent.values() if isinstance(dependent, dict) else ()

    def _takes_text(self, schema: JsonObject, text: str, depth: int) -> bool:
        """Return whether text is valid, alternatives aside."""
        self._spend(len(text) // 1024, depth)
        return (
            _may_be(schema, "string")
            and ("const" not in schema or schema["const"] == text)
            and ("enum" not in schema or (isinstance(schema["enum"], list) and text in schema["enum"]))
            and _is_length(schema.get("minLength", 0), at_most=len(text))
            and ("maxLength" not in schema or _is_length(schema["maxLength"], at_least=len(text)))
            and ("pattern" not in schema or bool((search := _search(schema["pattern"])) and search(text)))
            and schema.get("format", "text") in _FREE_FORMATS
            and "contentEncoding" not in schema
            and self._all_hold(self._beside(schema), None, text, depth)
        )

    def _is_taken_by_one(self, schema: JsonObject, text: str, depth: int) -> bool:
        for name in ("anyOf", "oneOf"):
            if name in schema:
                taken = sum(self.holds(branch, None, text, depth + 1) for branch in _listed(schema[name]))
                if taken == 0 or (name == "oneOf" and taken > 1):
                    return False
        return True

    def _may_take(self, schema: Any, value: Any, depth: int) -> bool:
        """Whether an alternative may be the one for `value`, by its type and by what tells alternatives apart."""
        self._spend(1, depth)
        if isinstance(schema, dict) and "$ref" in schema and depth < MAX_DEPTH:
            return self._may_take(self._resolve(schema["$ref"]), value, depth + 1)
        if not isinstance(schema, dict):
            return schema is not False
        if not _may_be(schema, next(name for name, kind in _TYPES.items() if isinstance(value, kind))):
            return False
        if isinstance(value, list):
            return True
        required, properties = schema.get("required"), schema.get("properties")
        if isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required):
            return False
        declared = properties.items() if isinstance(properties, dict) else ()
        return all(_may_equal(said, value[name]) for name, said in declared if name in value and isinstance(said, dict))

    def _may_rename(self, schema: JsonObject, before: JsonObject, after: JsonObject, depth: int) -> bool:
        """Return whether the masked names of members are valid."""
        names = schema.get("propertyNames", True)
        return all(
            old == new or (not _is_declared(schema, old) and self.holds(names, None, new, depth + 1))
            for old, new in zip(before, after, strict=True)
        )

    def _resolve(self, reference: Any) -> Any:
        """Return the target of a local reference; False, which accepts nothing, if there is none."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return False
        node = self._root
        for step in unquote(reference[1:]).split("/")[1:] if reference != "#" else ():
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and name.isdecimal() and len(name) < 6 and int(name) < len(node):
                node = node[int(name)]
            elif isinstance(node, dict) and name in node:
                node = node[name]
            else:
                return False
        return node if reference == "#" or reference.startswith("#/") else False


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _listed(schemas: Any) -> list[Any]:
    return schemas if isinstance(schemas, list) else [False]


def _may_be(schema: JsonObject, kind: str) -> bool:
    allowed = schema.get("type", kind)
    return allowed == kind or (isinstance(allowed, list) and kind in allowed)


def _may_equal(schema: JsonObject, value: Any) -> bool:
    values = [schema["const"]] if "const" in schema else schema.get("enum", [value])
    return not isinstance(values, list) or value in values


def _is_length(bound: Any, *, at_least: int | None = None, at_most: int | None = None) -> bool:
    if not isinstance(bound, int | float):
        return False
    return (at_least is None or bound >= at_least) and (at_most is None or bound <= at_most)


def _members(schema: JsonObject, before: JsonObject, after: JsonObject) -> Iterator[Any]:
    """Yield the schemas that apply to each member; none for an unchanged one."""
    for was, (name, now) in zip(before.values(), after.items(), strict=True):
        yield () if was is now else _of_member(schema, name)


def _of_member(schema: JsonObject, name: str) -> Iterator[Any]:
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    declared = False
    if isinstance(properties, dict) and name in properties:
        declared = True
        yield properties[name]
    for pattern, found in patterns.items() if isinstance(patterns, dict) else ():
        search = _search(pattern)
        if search is None or search(name):
            declared = declared or search is not None
            yield found
    if not declared:
        yield schema.get("additionalProperties", True)
    yield _if_object(schema.get("unevaluatedProperties"))


def _is_declared(schema: JsonObject, name: str) -> bool:
    """Return whether a schema names a member, so that the name must not change."""
    lists = [schema.get(place) for place in ("properties", "required")]
    by_name = any(name in said for said in lists if isinstance(said, dict | list))
    closed = any(schema.get(place) is False for place in ("additionalProperties", "unevaluatedProperties"))
    dependent = {"patternProperties", "dependentRequired", "dependentSchemas", "dependencies"}
    return by_name or closed or not dependent.isdisjoint(schema)


def _elements(schema: JsonObject, value: list[Any]) -> Iterator[Any]:
    """Yield the schemas that apply to each element."""
    items = schema.get("items", True)
    first, rest = (items, "additionalItems") if isinstance(items, list) else (schema.get("prefixItems"), "items")
    first = first if isinstance(first, list) else []
    everywhere = (schema.get("contains", True), _if_object(schema.get("unevaluatedItems")))
    for index in range(len(value)):
        yield (first[index] if index < len(first) else schema.get(rest, True), *everywhere)


def _if_object(schema: Any) -> Any:
    # A mask does not change whether unevaluated elements are allowed.
    return schema if isinstance(schema, dict) else True


def _search(pattern: Any) -> Callable[[str], bool] | None:
    """Return the matcher of a pattern; None if it is no pattern, or RE2 refuses it."""
    return _compile(pattern) if isinstance(pattern, str) else None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Callable[[str], bool] | None:
    try:
        return compile_search(pattern)
    except ValueError:
        return None
