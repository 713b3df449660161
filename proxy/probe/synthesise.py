"""Makes arguments for a tool from its schema: valid, and as meaningful as names and formats suggest. Pure.

The result is validated. What does not fit is made again from the schema alone, or left out where that does not fit.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from proxy.probe.listed_choices import described, listed_choices, listed_examples
from proxy.probe.regex_sample import example, is_found

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.core.model import JsonObject

MAX_DEPTH = 8
MAX_VARIANTS = 6
MAX_ITEMS = 3
MAX_TEXT = 1 << 16
# Characters of a schema. A larger one is there to stall us, and is treated as empty.
MAX_SCHEMA = 1 << 16
# What a schema with absurd numbers or nesting raises.
ABSURD = (RecursionError, OverflowError, MemoryError, ValueError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Files and folders that arguments may name: they exist, and hold nothing real."""

    file: str
    other_file: str
    folder: str
    repository: str
    new_file: str


@dataclass(frozen=True, slots=True)
class Input:
    label: str
    arguments: JsonObject


def synthesise(tool: JsonObject, samples: SampleFiles) -> tuple[Input, ...]:
    """Return different sets of arguments: the required ones, all, others, and one for each choice of a parameter."""
    schema = tool.get("inputSchema")
    root: JsonObject = schema if isinstance(schema, dict) else {}
    try:
        root = root if len(json.dumps(root)) <= MAX_SCHEMA else {}
    except ABSURD:
        root = {}
    if re.search(r"\b(director(y|ies)|folder|tree|search)\b", _words(str(tool.get("name", "")))):
        samples = replace(samples, file=samples.folder, other_file=samples.folder)
    tried: list[Input] = []
    for label, maker in _makers(root, samples, str(tool.get("description", ""))):
        arguments = _fill_in(maker, root)
        if arguments is None or not fits(root, arguments):
            arguments = _fill_in(replace(maker, meaningful=False), root)
        if arguments is not None and fits(root, arguments) and all(arguments != each.arguments for each in tried):
            tried.append(Input(label, arguments))
    return tuple(tried[:MAX_VARIANTS])


def _fill_in(maker: _ArgumentMaker, root: JsonObject) -> JsonObject | None:
    try:
        return maker.object(root)
    except ABSURD:
        return None


def _makers(root: JsonObject, samples: SampleFiles, about: str) -> Iterator[tuple[str, _ArgumentMaker]]:
    maker = _ArgumentMaker(root, samples, everything=True, about=about)
    yield "required", replace(maker, everything=False)
    yield "all", maker
    yield "other", replace(maker, turn=1)
    properties = _mapping(root.get("properties"))
    choices = [maker.choices(str(name), each) for name, each in properties.items() if _mapping(each)]
    for turn in range(2, min(max(choices, default=0), MAX_VARIANTS)):
        yield f"choice {turn}", replace(maker, turn=turn)


def fits(schema: JsonObject, arguments: JsonObject) -> bool:
    """Return whether arguments are valid."""
    try:
        _Validator.check_schema(schema)
        return bool(_Validator(schema, registry=Registry()).is_valid(arguments))
    except (SchemaError, Unresolvable, *ABSURD):
        return True  # a schema that cannot be checked forbids nothing


def _check_pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not is_found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


# The schema is the server's: its patterns must not stall us, so they run in RE2, and no reference is fetched.
_Validator = validators.extend(
    Draft202012Validator, {"pattern": _check_pattern, "patternProperties": lambda *_: iter(())}
)


@dataclass(frozen=True, slots=True)
class _ArgumentMaker:
    """One way to fill in a schema: `turn` chooses among alternatives."""

    root: JsonObject
    samples: SampleFiles
    everything: bool
    turn: int = 0
    meaningful: bool = True
    about: str = ""  # what the tool says of itself

    def choices(self, name: str, schema: JsonObject) -> int:
        """Return how many values a parameter names: in its schema, or in what is said of it."""
        return len(_list(schema.get("enum"))) or len(self._listed(name, schema))

    def object(self, schema: JsonObject, depth: int = 0) -> JsonObject | None:
        """Return arguments for an object schema; None where it is nested too deeply."""
        if depth > MAX_DEPTH:
            return None
        schema = self._resolve(schema)
        properties: Mapping[str, Any] = _mapping(schema.get("properties"))
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        names = list(properties) if self.everything and depth < 3 else [name for name in properties if name in required]
        inner = self
        if any(re.search(REPOSITORY, _words(name)) for name in properties):  # beside it, file names are relative to it
            inner = replace(self, samples=replace(self.samples, file="README.md", other_file="app.py"))
        made = {name: inner.value(name, properties[name], depth + 1) for name in names}
        return made | {name: inner.value(name, {}, depth + 1) for name in required if name not in made}

    def value(self, name: str, schema: Any, depth: int) -> Any:
        schema = self._resolve(schema if isinstance(schema, dict) else {})
        if "const" in schema:
            return schema["const"]
        given = _list(schema.get("enum"))
        if not given and self.meaningful and self.turn == 0:
            default = [schema["default"]] if schema.get("default") is not None else []
            given = [*_list(schema.get("examples")), *default]
        if given:
            return given[self.turn % len(given)]
        match self._type(name, schema):
            case "object":
                return self.object(schema, depth)
            case "array":
                return self._array(name, schema, depth)
            case "integer" | "number" as kind:
                # Small: a tool that waits should not run into its timeout.
                if self.meaningful and re.search(r"\b(duration|delay|seconds|timeout|wait|sleep)\b", _words(name)):
                    schema = {"minimum": 1, **schema}
                return _number(schema, self.turn, whole=kind == "integer")
            case "boolean":
                return self.turn % 2 == 1
            case "null":
                return None
            case _:
                return self._string(name, schema)

    def _type(self, name: str, schema: JsonObject) -> str:
        kind = schema.get("type")
        kinds = [each for each in _list(kind) if each != "null"] if isinstance(kind, list) else [kind]
        first = kinds[0] if kinds else "null"
        if isinstance(first, str):
            return first
        if self.meaningful and not schema and re.search(NUMBERS, _words(name)):
            return "number"  # such as an item of `numbers`, where the schema says only that it is a list
        return "object" if "properties" in schema else "array" if "items" in schema else "string"

    def _array(self, name: str, schema: JsonObject, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            return []
        fixed = _list(schema.get("prefixItems"))
        least = max(_int(schema.get("minItems"), 1), len(fixed))
        count = min(least, MAX_ITEMS + len(fixed), _int(schema.get("maxItems"), least))
        kinds = [*fixed, *[schema.get("items", {})] * count][:count]
        makers = [self] * count
        if schema.get("uniqueItems"):
            makers = [replace(self, turn=turn) for turn in range(self.turn, self.turn + count)]
        singular = name[:-1] if name.endswith("s") and not name.endswith("ss") else name
        return [maker.value(singular, kind, depth + 1) for maker, kind in zip(makers, kinds, strict=True)]

    def _string(self, name: str, schema: JsonObject) -> str:
        given = schema.get("pattern")
        pattern = given if isinstance(given, str) else None
        least, most = _int(schema.get("minLength"), 0), _int(schema.get("maxLength"), MAX_TEXT)
        wanted = [text for text in self._guesses(name, schema) if least <= len(text) <= most] if self.meaningful else []
        wanted = [text for text in wanted if pattern is None or is_found(pattern, text)]
        if wanted:
            return wanted[self.turn % len(wanted)]
        made = example(pattern) if pattern is not None else None
        text = made if made is not None else FORMATS.get(str(schema.get("format")), ("text",))[0]
        return text.ljust(min(least, MAX_TEXT), "x")[:most]

    def _guesses(self, name: str, schema: JsonObject) -> tuple[str, ...]:
        form = FORMATS.get(str(schema.get("format")))
        if form:
            return form
        if "path" in str(schema.get("format")):
            return (self.samples.file, self.samples.other_file)
        if listed := self._listed(name, schema):
            return listed
        said = described(self.about, name, str(schema.get("description", "")))
        examples = listed_examples(said)
        return (
            _hinted(f"{_words(name)} ", self._hints())
            or ((*examples, TEXTS[0]) if examples else ())
            or _hinted(f"{_words(name)} | {_words(said[:200])}", self._hints()[:DESCRIBED])
            or TEXTS
        )

    def _listed(self, name: str, schema: JsonObject) -> tuple[str, ...]:
        """Return what a description lists for a text that is no place, with a text that it does not list."""
        named = f"{_words(name)} "
        if not re.search(IDENTIFIER, named) and any(re.search(pattern, named) for pattern, _ in self._places()):
            return ()
        listed = listed_choices(described(self.about, name, str(schema.get("description", ""))))
        return (*listed, TEXTS[0]) if listed else ()

    def _hints(self) -> tuple[Hint, ...]:
        zones = ("Europe/Berlin", "America/New_York")
        # An identifier is no path, though it be of a document, a file or a source.
        return ((IDENTIFIER, ("1", "2")), (r"\b(time ?zone|tz)\b", zones), *self._places(), *NAMED)

    def _places(self) -> tuple[Hint, ...]:
        at = self.samples
        return (
            (REPOSITORY, (at.repository,)),
            (r"\b(dest(ination)?|output|target|to|new) (file|path)|\bdestination\b", (at.new_file,)),
            (r"\b(dir(ectory)?|folder|root|cwd|workspace)\b", (at.folder,)),
            (r"\b(path|file|filename|filepath|document|source)s?\b", (at.file, at.other_file)),
            (r"\b(url|uri|link|endpoint|website|webpage)s?\b", ("http://probe.example/page", "http://probe.example/b")),
        )

    def _resolve(self, schema: JsonObject) -> JsonObject:
        """Follow references and choose an alternative; a reference that leads nowhere allows anything."""
        for _ in range(MAX_DEPTH):
            if isinstance(schema.get("$ref"), str):
                found = _look_up(self.root, schema["$ref"])
                schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
                continue
            choices = [each for key in ("anyOf", "oneOf") for each in _list(schema.get(key)) if isinstance(each, dict)]
            some = [each for each in choices if each.get("type") != "null"]
            parts = [each for each in _list(schema.get("allOf")) if isinstance(each, dict)]
            if not some and not parts:
                return schema
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf")}
            schema = _merge(rest, *parts, *([some[self.turn % len(some)]] if some else []))
        return {}


type Hint = tuple[str, tuple[str, ...]]  # what a name is like, and what it takes

IDENTIFIER = r"\b(id|identifier) $"
REPOSITORY = r"\brepo(sitory)?\b"
TEXTS = ("A short note about the meeting on Monday", "second", "third")
NUMBERS = r"\b(number|amount|price|score|count|quantity|total|digit)\b"
# So many of the hints are also searched for in descriptions; the others are words that occur in any text.
DESCRIBED = 7
NAMED: tuple[Hint, ...] = (
    (r"\b(e ?mail|recipient)\b", ("someone@example.org", "other@example.org")),
    (r"\b(date ?time|timestamp)\b", ("2026-01-05T10:00:00Z", "2026-02-06T11:30:00Z")),
    (r"\btime\b", ("14:30", "09:15")),
    (r"\b(date|day|since|until)\b", ("2026-01-05", "2026-02-06")),
    (r"\b(branch)\b", ("feature", "main")),
    (r"\b(revision|commit|ref|sha|target|base|head)\b", ("main", "HEAD")),
    (r"\b(host|hostname|domain|server)\b", ("probe.example", "other.example")),
    (r"\b(ip|address)\b", ("192.0.2.7", "192.0.2.8")),
    (r"\b(command|cmd|shell)\b", ("echo hello", "true")),
    (r"\b(code|script)\b", ("print(1 + 1)", "1 + 1")),
    (r"\b(order by|sort|sort by|column)\b", ("name", "id")),
    (r"\b(expression|formula|equation)\b", ("1 + 1", "2 * 3")),
    (r"\b(module|library|package)\b", ("json", "math")),
    (r"\btemplate\b", ("Hello {name}", "Hello {{ name }}")),
    (r"\b(json|config(uration)?|settings|preferences)\b", ('{"name": "sample"}', '{"debug": true}')),
    (r"\broles?\b", ("user", "admin")),
    (r"\b(user ?name|user|login|account)\b", ("alex", "admin")),
    (r"\b(password|passphrase)\b", ("correct horse battery staple", "second-pass-phrase")),
    (r"\bsql\b", ("SELECT 1", "SELECT 2")),
    (r"\b(pattern|regex|glob)\b", ("*.md", "note")),
    (r"\b(query|search|term|keyword|q)\b", ("meeting notes", "report")),
    (r"\b(city|location|place)\b", ("Berlin", "Oslo")),
    (r"\b(currency)\b", ("EUR", "USD")),
    (r"\b(language|lang|locale)\b", ("en", "de")),
    (r"\b(name|title|subject|label)\b", ("sample", "second")),
    (r"\b(id|key|identifier)\b", ("1", "2")),
)
FORMATS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("uri", "url"), ("http://probe.example/page", "http://probe.example/b")),
    "uri-reference": ("http://probe.example/page",),
    "email": ("someone@example.org", "other@example.org"),
    "date": ("2026-01-05", "2026-02-06"),
    "time": ("14:30:00Z", "09:15:00Z"),
    "date-time": ("2026-01-05T10:00:00Z", "2026-02-06T11:30:00Z"),
    "duration": ("PT1M",),
    "uuid": ("3d1f0b52-6f0c-4b9e-9a56-0e6f6a2b7c11", "9f0c3d1f-0b52-4b9e-9a56-0e6f6a2b7c12"),
    "hostname": ("probe.example", "other.example"),
    "ipv4": ("192.0.2.7", "192.0.2.8"),
    "ipv6": ("2001:db8::7", "2001:db8::8"),
    "regex": ("note", "n.te"),
}


def _words(name: str) -> str:
    """Return a name in camelCase or snake_case as words in lower case."""
    return re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()).strip()


def _hinted(text: str, hints: tuple[Hint, ...]) -> tuple[str, ...]:
    """Return what the first hint that fits a text takes."""
    return next((values for pattern, values in hints if re.search(pattern, text)), ())


def _number(schema: JsonObject, turn: int, *, whole: bool) -> float:
    step = _real(schema.get("multipleOf")) or 1
    least, most = _real(schema.get("minimum")), _real(schema.get("maximum"))
    above, below = _real(schema.get("exclusiveMinimum")), _real(schema.get("exclusiveMaximum"))
    low = least if least is not None else above + step if above is not None else None
    high = most if most is not None else below - step if below is not None else None
    if low is None:
        low = 1.0 if high is None or high >= 1 else high
    number = -(-low // step) * step if "multipleOf" in schema or whole else low
    chosen = number + step * turn
    number = chosen if high is None or chosen <= high else min(number, high)
    return int(number) if whole or number == int(number) else number


def _look_up(root: JsonObject, reference: str) -> JsonObject:
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) and found is not root else {}


def _merge(*schemas: JsonObject) -> JsonObject:
    merged: JsonObject = {}
    for schema in schemas:
        properties = {**_mapping(merged.get("properties")), **_mapping(schema.get("properties"))}
        required = [*_list(merged.get("required")), *_list(schema.get("required"))]
        merged = {**merged, **schema}
        merged |= {"properties": properties} if properties else {}
        merged |= {"required": required} if required else {}
    return merged


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: Any, otherwise: int) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _real(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
