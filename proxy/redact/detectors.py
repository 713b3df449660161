"""Detectors as data: reading, checking and choosing them.

Pure but for reading `detectors.yaml`, which is packaged beside this file, and `detectors.json`: the same as it was
read and checked when it was last changed, since YAML takes a hundred times as long. A policy may bring detectors of
its own; they have the same shape and are checked the same way.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import re2
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from proxy.errors import PolicyError
from proxy.redact.validators import VALIDATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KEYWORD_REACH = 128
"""How far from a match, in bytes, one of its detector's keywords may stand."""

_LABELS = {"secrets": "secret", "pii": "pii", "custom": "custom"}
FAMILIES = tuple(_LABELS)
"""What the ids of detectors begin with; a rule may name a whole family."""

type Keyword = Annotated[str, Field(min_length=1, max_length=64)]


class Detector(BaseModel):
    """One kind of secret or personal datum, as `detectors.yaml` explains it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(pattern=r"^(secrets|pii|custom)\.[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
    description: Annotated[str, Field(min_length=1)]
    regex: Annotated[str, Field(min_length=1, max_length=2000)]
    keywords: tuple[Keyword, ...] = ()
    edges: Literal["free", "word", "left", "none"] = "free"
    hint: str | None = None
    group: Annotated[int, Field(ge=0)] = 0
    entropy: Annotated[float, Field(ge=0, le=8)] = 0.0
    allow: tuple[str, ...] = ()
    stopwords: tuple[Keyword, ...] = ()
    validator: str | None = None

    @field_validator("keywords", "allow", "stopwords", mode="before")
    @classmethod
    def _lists_are_tuples(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("keywords", "stopwords")
    @classmethod
    def _lower_case(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.lower() for word in value)

    @field_validator("validator")
    @classmethod
    def _known_validator(cls, value: str | None) -> str | None:
        if value is not None and value not in VALIDATORS:
            raise ValueError(f"unknown validator {value!r}; one of {', '.join(sorted(VALIDATORS))}")
        return value

    @model_validator(mode="after")
    def _regexes_compile(self) -> Self:
        compiled = compile_bytes(self.pattern)
        if self.group > compiled.groups:
            raise ValueError(f"group {self.group} is not in the regex, which has {compiled.groups}")
        if compiled.search(b"") is not None:
            raise ValueError("the regex matches the empty string; make part of it obligatory")
        for regex in (*self.allow, self.hint or ""):
            compile_bytes(regex)
        return self

    @property
    def pattern(self) -> str:
        """The regex with its edges."""
        if self.edges == "word":
            return rf"\b(?:{self.regex})\b"
        if self.edges == "left":
            return rf"\b(?:{self.regex})"
        return self.regex

    @property
    def label(self) -> str:
        """What stands in a mask: `secret:aws-access-key`."""
        family, _, name = self.id.partition(".")
        return f"{_LABELS[family]}:{name}"

    @property
    def crosses_fields(self) -> bool:
        """Whether the format alone is proof enough to be put together from several strings."""
        return self.edges != "none" and not self.id.startswith("pii.")


def compile_bytes(regex: str) -> Any:
    """Compile `regex` to match bytes one by one, as hyperscan does.

    Raises ValueError where RE2 refuses it.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    try:
        return re2.compile(regex.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "refused"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"RE2 refuses {regex!r}: {text}") from error


type Search = Callable[[bytes, int, int], list[tuple[int, int]]]


def compile_search(regex: str) -> Search:
    """Compile `regex` to a search of bytes from one place to another.

    It gives the spans of the leftmost match and of its groups, -1 for what took no part. RE2's own
    `finditer` gives the same as objects, which cost more than the search does.
    """
    led = _LED.fullmatch(regex)
    search = _search(regex)
    if led is None or not _has_no_groups(led["group"]):
        return search
    # A capture doubles the cost of a search. Where one byte leads it and nothing follows, it is known without.
    plain = _search(f"{led['lead']}(?:{led['group']}){led['edge']}")

    def spans(data: bytes, position: int, limit: int) -> list[tuple[int, int]]:
        start, end = plain(data, position, limit)[0]
        if not start:
            return search(data, position, limit)
        return [(start, end), (start + 1, end) if start > 0 else (-1, -1)]

    return spans


_LED: Final = re.compile(r"(?P<lead>\(\?:\^\|\[\^[^\]]+\]\))\((?!\?)(?P<group>.*)\)(?P<edge>(?:\\b)?)")


def _search(regex: str) -> Search:
    compiled = compile_bytes(regex)._regexp  # noqa: SLF001
    return functools.partial(compiled.Match, compiled.Anchor.UNANCHORED)


def _has_no_groups(regex: str) -> bool:
    try:
        return not compile_bytes(regex).groups
    except ValueError:  # parts of two groups
        return False


@dataclass(frozen=True)
class DetectorCatalog:
    """All detectors there are, in order of precedence. Compared by identity, so it can be a cache key."""

    detectors: tuple[Detector, ...]

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @functools.cached_property
    def _selections(self) -> dict[tuple[str, ...], frozenset[int]]:
        return {}

    def knows(self, names: Sequence[str]) -> bool:
        """Return whether each of `names` is a family or the id of a detector."""
        return self._ids.issuperset(names)

    @functools.cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset({*FAMILIES, *(detector.id for detector in self.detectors)})

    def select(self, names: Sequence[str]) -> frozenset[int]:
        """Return the indexes of the detectors that `names` choose: ids, or `secrets`, `pii`, `custom`.

        Raises PolicyError for a name that chooses nothing.
        """
        key = tuple(names)
        chosen = self._selections.get(key)
        if chosen is None:
            chosen = frozenset[int]().union(*(self._select_one(name) for name in key))
            self._selections[key] = chosen
        return chosen

    def _select_one(self, name: str) -> frozenset[int]:
        # A family is a name even while nobody has defined a detector in it.
        if name not in self._ids:
            raise PolicyError(
                f"unknown detector {name!r}: give a family (secrets, pii, custom) or an id such as pii.card"
            )
        return frozenset(
            index
            for index, detector in enumerate(self.detectors)
            if detector.id == name or detector.id.startswith(f"{name}.")
        )

    def extended(self, custom: Iterable[Mapping[str, Any]]) -> DetectorCatalog:
        """Return a catalogue with a policy's own detectors after the built-in ones.

        Raises PolicyError for one that is malformed or takes an id that is taken.
        """
        added = tuple(parse_detector(raw) for raw in custom)
        if not added:
            return self
        catalogue = DetectorCatalog((*self.detectors, *added))
        _refuse_duplicates(catalogue.detectors)
        return catalogue


def parse_detector(raw: Mapping[str, Any]) -> Detector:
    """Check one detector as written.

    Raises PolicyError that names the detector, the field and what is wrong with it.
    """
    try:
        return Detector.model_validate(dict(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PolicyError(f"detector {raw.get('id', '?')!r}: {where}: {first['msg']}") from error


@functools.cache
def builtin() -> DetectorCatalog:
    """Return the detectors that come with Interlock, read once."""
    folder = files(__package__)
    text = folder.joinpath("detectors.yaml").read_bytes()
    kept = json.loads(folder.joinpath("detectors.json").read_bytes())
    return _trusted(kept["detectors"]) if kept["of"] == _digest(text) else parse_catalogue(text)


def parse_catalogue(text: bytes) -> DetectorCatalog:
    """Read and check what `detectors.yaml` says. Raises PolicyError."""
    from ruamel.yaml import YAML  # noqa: PLC0415  for who changes detectors

    detectors = tuple(parse_detector(raw) for raw in YAML(typ="safe", pure=True).load(text.decode()))
    _refuse_duplicates(detectors)
    return DetectorCatalog(detectors)


def spell_catalogue(text: bytes) -> str:
    """Return what `detectors.json` is to say of this `detectors.yaml`: a line a detector. Raises PolicyError."""
    found = parse_catalogue(text).detectors
    lines = ",\n".join(detector.model_dump_json(exclude_defaults=True) for detector in found)
    return f'{{"of": "{_digest(text)}", "detectors": [\n{lines}\n]}}\n'


def _trusted(kept: list[dict[str, Any]]) -> DetectorCatalog:
    """Take detectors that were checked before, as they were."""
    fields = ({key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()} for raw in kept)
    return DetectorCatalog(tuple(Detector.model_construct(None, **values) for values in fields))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _refuse_duplicates(detectors: tuple[Detector, ...]) -> None:
    seen: set[str] = set()
    for detector in detectors:
        if detector.id in seen:
            raise PolicyError(f"detector {detector.id!r} is defined twice")
        seen.add(detector.id)
