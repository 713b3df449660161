"""Reads `key=value` words of `interlock call` into a tool's arguments. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `words` give, as the tool's input schema types them.

    A value is text where the schema says so, else JSON, and text where it is none. `key:=JSON` is JSON in any case.
    Raises ConfigError for a word without `=`, a key that stands twice, and JSON that cannot be read.
    """
    given: dict[str, Any] = {}
    properties = schema.get("properties")
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key.rstrip(":"):
            raise ConfigError(f"{word!r} is not an argument; write key=value, or key:=JSON")
        exact = key.endswith(":")
        key = key.removesuffix(":")
        if key in given:
            raise ConfigError(f"the argument {key!r} is given twice")
        declared = properties.get(key) if isinstance(properties, dict) else None
        given[key] = _read_exactly(key, text) if exact else _read(text, declared)
    return given


def _read_exactly(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the argument {key!r} is not JSON: {error}; write {key}=TEXT for text") from None


def _read(text: str, declared: Any) -> Any:
    kind = declared.get("type") if isinstance(declared, dict) else None
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
