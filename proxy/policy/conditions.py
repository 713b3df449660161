"""The conditions of rules as they are written: pydantic models. Pure, no I/O."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from proxy.policy.arg_path import parse_arg
from proxy.policy.fields import NonEmptyStr, Regex, Strict

type Scalar = StrictStr | StrictInt | StrictFloat | StrictBool | None
type Number = StrictInt | StrictFloat
type IpClass = Literal[
    "loopback", "private", "link_local", "metadata", "multicast", "reserved", "unspecified", "public"
]
type JsonType = Literal["string", "number", "integer", "boolean", "array", "object", "null"]

OPERATORS = (
    "equals",
    "not_equals",
    "in",
    "starts_with",
    "ends_with",
    "contains",
    "matches",
    "gt",
    "gte",
    "lt",
    "lte",
    "exists",
    "type",
    "length",
    "path_under",
    "host_in",
    "url_scheme",
    "ip_class",
    "cidr",
    "command",
)


def as_tuple[T](value: T | list[T]) -> tuple[T, ...]:
    """Return one or many as many."""
    return tuple(value) if isinstance(value, list) else (value,)


def _check_arg(text: str) -> str:
    parse_arg(text)
    return text


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError("not an address range; write it like 10.0.0.0/8 or fd00::/8") from None
    return text


def _check_root(text: str) -> str:
    if text.startswith("~") or "\0" in text:
        raise ValueError("a root is written out in full, like /home/agent; ~ depends on who reads it")
    return text


type OneOrMoreStr = NonEmptyStr | Annotated[list[NonEmptyStr], Field(min_length=1)]
type Root = Annotated[NonEmptyStr, AfterValidator(_check_root)]
type Network = Annotated[NonEmptyStr, AfterValidator(_check_network)]


class Bounds(Strict):
    """How long a string, array or object may be."""

    gt: StrictInt | None = Field(default=None, description="Longer than this.")
    gte: StrictInt | None = Field(default=None, description="At least this long.")
    lt: StrictInt | None = Field(default=None, description="Shorter than this.")
    lte: StrictInt | None = Field(default=None, description="At most this long.")

    @model_validator(mode="after")
    def _not_empty(self) -> Bounds:
        if not self.model_fields_set:
            raise ValueError("length wants a number, or bounds like {gt: 100}")
        return self


class Condition(Strict):
    """One `arg` and what must hold of it; several operators must all hold."""

    arg: Annotated[StrictStr, AfterValidator(_check_arg)] = Field(
        description="Which value: path, arguments.path, files[*].path, **.url, or ** for every scalar."
    )
    equals: Scalar = Field(default=None, description="The value is this.")
    not_equals: Scalar = Field(default=None, description="The value is not this.")
    in_: Annotated[list[Scalar], Field(min_length=1)] | None = Field(
        default=None, alias="in", description="The value is one of these."
    )
    starts_with: OneOrMoreStr | None = Field(default=None, description="The text starts with this.")
    ends_with: OneOrMoreStr | None = Field(default=None, description="The text ends with this.")
    contains: OneOrMoreStr | None = Field(
        default=None, description="The text has this in it, or the array has this element."
    )
    matches: Regex | Annotated[list[Regex], Field(min_length=1)] | None = Field(
        default=None, description="An RE2 expression found anywhere in the text."
    )
    gt: Number | None = Field(default=None, description="The number is greater than this.")
    gte: Number | None = Field(default=None, description="The number is this or greater.")
    lt: Number | None = Field(default=None, description="The number is less than this.")
    lte: Number | None = Field(default=None, description="The number is this or less.")
    exists: StrictBool | None = Field(default=None, description="Whether the value is there at all.")
    type: JsonType | Annotated[list[JsonType], Field(min_length=1)] | None = Field(
        default=None, description="The value is of one of these types."
    )
    length: StrictInt | Bounds | None = Field(default=None, description="How many characters, elements or members.")
    path_under: Root | Annotated[list[Root], Field(min_length=1)] | None = Field(
        default=None, description="The path is one of these folders or inside one, however it is spelt."
    )
    host_in: OneOrMoreStr | None = Field(
        default=None,
        description="The URL or host is one of these: example.com, *.example.com, 169.254.169.254.",
    )
    url_scheme: OneOrMoreStr | None = Field(default=None, description="The URL's scheme is one of these.")
    ip_class: IpClass | Annotated[list[IpClass], Field(min_length=1)] | None = Field(
        default=None, description="The address, or the URL's or host's where it is one, is of one of these classes."
    )
    cidr: Network | Annotated[list[Network], Field(min_length=1)] | None = Field(
        default=None, description="The address is in one of these ranges: 10.0.0.0/8, fd00::/8."
    )
    command: OneOrMoreStr | None = Field(
        default=None,
        description="The shell command runs one of these programs: curl, 'rm -rf', 'git push --force'.",
    )

    @model_validator(mode="after")
    def _has_operator(self) -> Condition:
        if self.model_fields_set == {"arg"}:
            raise ValueError(f"a condition needs an operator beside arg: one of {', '.join(OPERATORS)}")
        return self

    def operators(self) -> dict[str, Any]:
        """Return the operators written, by their name in the file."""
        given = self.model_fields_set
        return {written: getattr(self, name) for name, written in _OPERATOR_FIELDS if name in given}


_OPERATOR_FIELDS = tuple((name, field.alias or name) for name, field in Condition.model_fields.items() if name != "arg")


class All(Strict):
    """Every one holds."""

    all: Annotated[list[When], Field(min_length=1)] = Field(description="What must hold.")


class Any_(Strict):  # noqa: N801 - `Any` is taken
    """At least one holds."""

    any: Annotated[list[When], Field(min_length=1)] = Field(description="Of what one must hold.")


class Not(Strict):
    """It does not hold."""

    not_: When = Field(alias="not", description="What must not hold.")


def _form(value: Any) -> str | None:
    if isinstance(value, dict):
        forms = [key for key in ("all", "any", "not") if key in value]
        if len(forms) == 1:
            return forms[0]
        return "condition" if not forms else None
    for kind, form in ((All, "all"), (Any_, "any"), (Not, "not"), (Condition, "condition")):
        if isinstance(value, kind):
            return form
    return None


type When = Annotated[
    Annotated[All, Tag("all")]
    | Annotated[Any_, Tag("any")]
    | Annotated[Not, Tag("not")]
    | Annotated[Condition, Tag("condition")],
    Discriminator(
        _form,
        custom_error_type="when_form",
        custom_error_message="write one of all: [...], any: [...], not: {...} or a condition {arg: ..., ...}",
    ),
]


for _model in (All, Any_, Not):
    _model.model_rebuild()
