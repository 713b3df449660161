"""Checks OCSF events by the rules of OCSF's own validator, on the schema that scripts/telemetry_schemas.py fetched.

Checked: no unknown attributes, those that are required are there, types, values of enumerations and the captions
beside them, constraints of objects, and `type_uid`. Attributes of a profile are taken only from events that name it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[1] / "telemetry" / "schemas" / "ocsf.json"
UIDS = {6003: "api_activity", 2004: "detection_finding"}
TEXTS = (
    "string_t",
    "username_t",
    "hostname_t",
    "ip_t",
    "url_t",
    "email_t",
    "uuid_t",
    "mac_t",
    "datetime_t",
    "file_name_t",
)


@functools.cache
def schema() -> Any:
    return json.loads(SCHEMA.read_text())


def problems(event: dict[str, Any]) -> list[str]:
    """Return what is wrong with an event; nothing where it is valid."""
    name = UIDS.get(event.get("class_uid", -1))
    if name is None:
        return [f"class_uid {event.get('class_uid')!r} is none of {UIDS}"]
    found = [*_object(event, schema()["classes"][name], "", tuple(event.get("metadata", {}).get("profiles", ())))]
    if event.get("type_uid") != event["class_uid"] * 100 + event.get("activity_id", -1):
        found.append("type_uid is not class_uid * 100 + activity_id")
    if event.get("category_uid") != event["class_uid"] // 1000:
        found.append("category_uid is not that of the class")
    if event.get("metadata", {}).get("version") != schema()["version"]:
        found.append("metadata.version is not the schema's")
    return found


def _object(value: Any, definition: Any, path: str, profiles: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: no object"
        return
    known = {name: one for name, one in definition["attributes"].items() if "of" not in one or one["of"] in profiles}
    yield from (f"{path}.{name}: unknown" for name in value if name not in known)
    for name, one in known.items():
        if name in value:
            yield from _attribute(value[name], one, f"{path}.{name}", profiles)
            yield from _sibling(value, name, one, path)
        elif one["requirement"] == "required":
            yield f"{path}.{name}: required"
    constraint = definition.get("constraints", {})
    if (one_of := constraint.get("at_least_one")) and not any(name in value for name in one_of):
        yield f"{path}: at least one of {one_of}"


def _attribute(value: Any, one: Any, path: str, profiles: tuple[str, ...]) -> Iterator[str]:
    if one.get("array"):
        if not isinstance(value, list):
            yield f"{path}: no array"
            return
        for number, item in enumerate(value):
            yield from _single(item, one, f"{path}[{number}]", profiles)
    else:
        yield from _single(value, one, path, profiles)


def _single(value: Any, one: Any, path: str, profiles: tuple[str, ...]) -> Iterator[str]:
    kind, whole = one["type"], isinstance(value, int) and not isinstance(value, bool)
    if kind in schema()["objects"]:
        yield from _object(value, schema()["objects"][kind], path, profiles)
    elif kind in TEXTS and not isinstance(value, str):
        yield f"{path}: no text"
    elif kind == "integer_t" and not (whole and -(1 << 31) <= value < 1 << 31):
        yield f"{path}: no integer of 32 bits"
    elif kind in ("long_t", "timestamp_t") and not (whole and -(1 << 63) <= value < 1 << 63):
        yield f"{path}: no integer of 64 bits"
    elif kind == "boolean_t" and not isinstance(value, bool):
        yield f"{path}: no boolean"
    elif (values := one.get("values")) and path not in (".category_uid", ".class_uid") and str(value) not in values:
        yield f"{path}: {value!r} is none of {[*values]}"


def _sibling(value: Any, name: str, one: Any, path: str) -> Iterator[str]:
    """Yield where a caption is not that of its number. Of 99, "Other", the caption is the source's own."""
    caption, number = value.get(one.get("sibling", "")), str(value[name])
    expected = one.get("values", {}).get(number)
    of_class = (path, name) in (("", "category_uid"), ("", "class_uid"))
    if not of_class and caption is not None and expected is not None and number != "99" and caption != expected:
        yield f"{path}.{one['sibling']}: {caption!r} is not {expected!r}"
