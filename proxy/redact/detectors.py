"""Detectors as data: what one consists of, how it is checked, and its regex compiled. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from re import _parser as parser  # type: ignore[attr-defined]  # nothing public tells how long a match can be
from typing import Annotated, Any, Final, Literal, Self

import re2
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from proxy.redact.validators import VALIDATORS

KEYWORD_REACH = 128  # how far from a match, in bytes, one of its detector's keywords may stand
NAME_REACH = 80  # how many bytes before and after a match say what it is: `not_after`, `not_before`

_LABELS = {"secrets": "secret", "pii": "pii", "wallet": "wallet", "shape": "shape", "custom": "custom"}
_ENDLESS = 1 << 16
FAMILIES = tuple(_LABELS)  # what the ids of detectors begin with; a rule may name a whole family

type Keyword = Annotated[str, Field(min_length=1, max_length=64)]


class Detector(BaseModel):
    """One kind of secret or personal datum, as `detectors.yaml` explains it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(pattern=r"^(secrets|pii|wallet|shape|custom)\.[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
    description: Annotated[str, Field(min_length=1)]
    regex: Annotated[str, Field(min_length=1, max_length=2000)]
    keywords: tuple[Keyword, ...] = ()
    edges: Literal["free", "word", "left", "none"] = "free"
    hint: str | None = None
    group: Annotated[int, Field(ge=0)] = 0
    entropy: Annotated[float, Field(ge=0, le=8)] = 0.0
    allow: tuple[str, ...] = ()
    stopwords: tuple[Keyword, ...] = ()
    not_after: str | None = None
    not_before: str | None = None
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
        # It would match everywhere, and mask every text to nothing but masks.
        if compiled.search(b"") is not None:
            raise ValueError("the regex matches the empty string; make part of it obligatory")
        for regex in (*self.allow, self.hint or "", self.not_after or "", self.not_before or ""):
            compile_bytes(regex)
        return self

    @property
    def pattern(self) -> str:
        if self.edges not in ("word", "left"):
            return self.regex
        return rf"\b(?:{self.regex})" + (r"\b" if self.edges == "word" else "")

    @property
    def label(self) -> str:
        """Return what stands in a mask: `secret:aws-access-key`."""
        family, _, name = self.id.partition(".")
        return f"{_LABELS[family]}:{name}"

    @property
    def crosses_fields(self) -> bool:
        """Return whether a match may be put together from several strings."""
        # Only where the format alone is proof: digits of two fields often make a card number by chance.
        return self.edges != "none" and not self.id.startswith("pii.")

    @property
    def repeats(self) -> bool:
        """Return whether what it finds is masked everywhere in the value, also where no name says what it is."""
        return self.id.startswith("secrets.")


def longest_match(regex: str) -> int | None:
    """Return how many bytes a match of `regex`, which RE2 takes, can have at most; None where there is no telling."""
    # To RE2 `{,9}` is text. Of the rest Python warns that it may read it otherwise one day.
    if any(sign in regex for sign in ("{,", "[[", "--", "&&", "||", "~~")):
        return None
    try:
        longest = int(parser.parse(regex.encode()).getwidth()[1])
    except re.error:
        return None
    return longest if longest < _ENDLESS else None


def compile_bytes(regex: str) -> Any:
    """Compile `regex` to match bytes one by one, as hyperscan does. Raises ValueError where RE2 refuses it."""
    # RE2 and not `re`: a policy brings regexes, an agent brings texts, and RE2 is linear in any pair of them.
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
    """Return a function that finds, between two offsets, the spans of the first match and its groups; -1 for none."""
    # RE2's `Match` and not `finditer` of its wrapper, which returns objects that cost more than the search does.
    led = _LED.fullmatch(regex)
    search = _search(regex)
    try:
        if led is None or compile_bytes(led["group"]).groups:
            return search
    except ValueError:  # parts of two groups
        return search
    # A capture doubles the cost of a search. Where one byte leads the group and nothing follows, its span is known
    # without; but at offset 0 the lead may have been `^`, so there the capture decides.
    plain = _search(f"{led['lead']}(?:{led['group']}){led['edge']}")

    def spans(data: bytes, position: int, limit: int) -> list[tuple[int, int]]:
        start, end = plain(data, position, limit)[0]
        if not start:
            return search(data, position, limit)
        return [(start, end), (start + 1, end) if start > 0 else (-1, -1)]

    return spans


_LED: Final = re.compile(r"(?P<lead>\(\?:\^\|\[\^[^\]]+\]\))\((?!\?)(?P<group>.*)\)(?P<edge>(?:\\b)?)")


type Test = Callable[[bytes], bool]


def compile_test(regex: str, *, whole: bool = False, at_start: bool = False) -> Test:
    """Return a function that tells whether `regex` is found in some bytes, at their start, or is all of them."""
    # Every match asks several of these, and the wrapper's match objects cost more than the answer.
    compiled = compile_bytes(regex)._regexp  # noqa: SLF001
    anchors = compiled.Anchor
    anchor = anchors.ANCHOR_BOTH if whole else anchors.ANCHOR_START if at_start else anchors.UNANCHORED
    match = functools.partial(compiled.Match, anchor)
    return lambda data: match(data, 0, len(data))[0][0] >= 0


def _search(regex: str) -> Search:
    compiled = compile_bytes(regex)._regexp  # noqa: SLF001
    return functools.partial(compiled.Match, compiled.Anchor.UNANCHORED)
