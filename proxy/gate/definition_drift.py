"""Tells a harmless edit of a tool, of instructions or of an agent card from one that somebody should look at. Pure.

Harmless is what changes no meaning: white space, punctuation, a version number, a typo, a new optional parameter, one
more value of an enum. Everything else is a departure: a word more, a number, an address, a type, a hint, a default, a
parameter that is required. Both definitions are always compared as they were approved and as they are now, so small
steps do not add up to a large one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.injection.content import ValueContent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import JsonObject

MAX_TYPOS: Final = 3
MAX_REASONS: Final = 20
_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019.:/@_-]+[^\W_]+)*")
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+){1,3}(?:[-+][0-9a-z.-]{1,30})?|v\d{1,4}", re.IGNORECASE)
_TYPO: Final = re.compile(r"[a-z]{4,30}")
_SPOKEN: Final = frozenset(("description", "title", "$comment", "instructions", "text"))
_SCHEMAS: Final = frozenset(("inputSchema", "outputSchema"))
_VERSIONS: Final = frozenset(("version", "protocolVersion"))
# Of a card: what changes whenever anything else does, and says nothing by itself.
_SEALS: Final = frozenset(("signatures",))
_ENUM_VALUE: Final = re.compile(r"[\w .+-]{1,40}")
# Names of parameters through which a tool could ask for what is not its business.
_ASKING: Final = re.compile(
    r"note|context|convers|histor|prompt|message|secret|token|key|pass|credential|auth|cookie|session|url|uri|link|host|"
    r"callback|webhook|e?mail|recipient|bcc|cc$|forward|file|path|content|env|command|script|code|debug|memory|summary|"
    r"reason|system|user|account|card|address",
    re.IGNORECASE,
)


def departures(before: JsonObject | None, after: JsonObject | None) -> tuple[str, ...]:
    """Say what of a definition departs from the approved one; nothing where the edit is harmless."""
    if before is None or after is None:
        return ("too long to be compared",)
    try:
        found = list(_differences(before, after, ""))
        new = _signs(after) - _signs(before)
    except RecursionError:
        return ("nested too deep to be compared",)
    found += [f"speaks to the model: {sign}" for sign in sorted(new)]
    return tuple(dict.fromkeys(found))[:MAX_REASONS]


def _signs(definition: JsonObject) -> set[str]:
    return {kind for passage in ValueContent(definition).passages for kind in passage.kinds}


def _differences(before: JsonObject, after: JsonObject, path: str) -> Iterator[str]:
    for key in sorted({*before, *after}):
        where = f"{path}.{key[:60]}" if path else key[:60]
        if before.get(key) == after.get(key) and (key in before) == (key in after):
            continue
        old, new = before.get(key), after.get(key)
        if key in _SEALS and not path:
            continue
        if key in _SCHEMAS and isinstance(old, dict) and isinstance(new, dict):
            yield from _schema_differences(old, new, where)
        elif isinstance(old, str) and isinstance(new, str):
            yield from () if _is_same_text(key, old, new) else (f"{where}: other words",)
        elif isinstance(old, dict) and isinstance(new, dict) and key != "annotations":
            yield from _differences(old, new, where)
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            yield from _list_differences(old, new, where)
        else:
            yield f"{where}: {_what(key in before, key in after)}"


def _list_differences(before: list[Any], after: list[Any], where: str) -> Iterator[str]:
    for old, new in zip(before, after, strict=True):
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{where}[]")
        elif old != new:
            yield f"{where}: other values"


def _what(was: bool, is_now: bool) -> str:  # noqa: FBT001  two states of one thing
    return "changed" if was and is_now else "new" if is_now else "gone"


def _schema_differences(before: JsonObject, after: JsonObject, path: str) -> Iterator[str]:
    """Compare two schemas: what callers may send more is harmless, what they must send or get differently is not."""
    known = _dict(before.get("properties"))
    for key in sorted({*before, *after} - {"properties", "required"}):
        old, new = before.get(key), after.get(key)
        where = f"{path}.{key[:60]}"
        if old == new:
            continue
        if key in _SPOKEN and isinstance(old, str) and isinstance(new, str):
            yield from () if _is_same_text(key, old, new) else (f"{where}: other words",)
        elif key == "enum" and isinstance(old, list) and isinstance(new, list):
            yield from () if _only_adds_values(old, new) else (f"{where}: other values",)
        elif key == "items" and isinstance(old, dict) and isinstance(new, dict):
            yield from _schema_differences(old, new, where)
        else:
            yield f"{where}: {_what(key in before, key in after)}"
    given = _dict(after.get("properties"))
    required = set(_names(after.get("required")))
    for name in sorted(required - set(_names(before.get("required")))):
        yield f"{path}.{name[:60]}: now required"
    for name in sorted({*known, *given}):
        yield from _property_differences(name, known.get(name), given.get(name), f"{path}.{name[:60]}")


def _property_differences(name: str, old: Any, new: Any, where: str) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _schema_differences(old, new, where)
    elif old is None and isinstance(new, dict):
        yield from () if _is_plain_parameter(name, new) else (f"{where}: a new parameter of a kind that needs a look",)
    else:
        yield f"{where}: {_what(old is not None, new is not None)}"


def _is_plain_parameter(name: str, schema: JsonObject) -> bool:
    """Return whether a new parameter asks for nothing in particular: a number, a choice or a plain word."""
    if _ASKING.search(name) or not schema.keys() <= {"type", "description", "title", "default", "enum", *_BOUNDS}:
        return False
    said = " ".join(str(schema.get(key, "")) for key in ("description", "title"))
    if _ASKING_TEXT.search(said) or len(said) > 200:
        return False
    choices = schema.get("enum")
    if schema.get("type") == "string" and choices is None:
        return len(said) < 120 and not str(schema.get("default", "")).strip()
    return schema.get("type") in ("boolean", "integer", "number", "string") and _only_adds_values([], choices or [])


_BOUNDS: Final = ("minimum", "maximum", "minLength", "maxLength", "multipleOf")
_ASKING_TEXT: Final = re.compile(
    r"https?:|@|\b(?:must|always|never|before|first|ignore|include|send|read|copy|paste|secret|token|password|"
    r"credential|key|conversation|history|prompt|instruction|file)\w*",
    re.IGNORECASE,
)


def _only_adds_values(old: list[Any], new: list[Any]) -> bool:
    added = [value for value in new if value not in old]
    plain = all(isinstance(value, str) and _ENUM_VALUE.fullmatch(value) for value in added)
    return all(value in new for value in old) and plain and len(added) <= 20


def _is_same_text(key: str, old: str, new: str) -> bool:
    """Return whether two texts mean the same: they differ in white space, versions or a few typos."""
    if key in _VERSIONS:
        return _VERSION.fullmatch(new.strip()) is not None
    if key not in _SPOKEN:
        return False
    if _signature(old) != _signature(new):
        return False
    was, now = _words(old), _words(new)
    if len(was) != len(now):
        return False
    changed = [(a, b) for a, b in zip(was, now, strict=True) if a != b]
    return len(changed) <= MAX_TYPOS and all(_is_typo(a, b) for a, b in changed)


def _signature(text: str) -> str:
    """Return the characters of a text that are neither letters, white space nor everyday punctuation."""
    return re.sub(r"[\w\s.,;:!?'\"()\u2018-\u201d\u2013-]", "", text)


def _words(text: str) -> list[str]:
    return [
        _VERSION.sub("#", word.casefold()) if _VERSION.fullmatch(word) else word.casefold()
        for word in _WORD.findall(text)
    ]


def _is_typo(old: str, new: str) -> bool:
    """Return whether one word is the other with one letter more, less, changed or two of them swapped.

    Both begin alike and are four letters or more: `import` is not `export`, and `now` is not `not`.
    """
    if not (_TYPO.fullmatch(old) and _TYPO.fullmatch(new)) or old[0] != new[0]:
        return False
    if len(old) == len(new):
        at = [index for index in range(len(old)) if old[index] != new[index]]
        swapped = len(at) == 2 and at[1] == at[0] + 1 and old[at[0]] == new[at[1]] and old[at[1]] == new[at[0]]
        return len(at) == 1 or swapped
    short, long = sorted((old, new), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _dict(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
