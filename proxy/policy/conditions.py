"""The conditions of rules as a policy file has them: pydantic models. Pure, no I/O."""

from __future__ import annotations

import hashlib
import ipaddress
import shlex
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.types import StrictBool, StrictFloat, StrictInt, StrictStr

from proxy.policy.arg_path import parse_arg
from proxy.policy.globs import compile_globs
from proxy.policy.home import UNKNOWN_HOMES, expand_home
from proxy.policy.regex import compile_search

if TYPE_CHECKING:
    from collections.abc import Iterator


def as_tuple[T](value: T | list[T]) -> tuple[T, ...]:
    """Return one value or a list of values as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)


def _check_regex(pattern: str) -> str:
    try:
        compile_search(pattern)
    except ValueError as error:
        raise ValueError(f"{error}; RE2 has no look-around and no back-references") from None
    return pattern


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError("not an address range; write it like 10.0.0.0/8 or fd00::/8") from None
    return text


def _check_root(text: str) -> str:
    root = text.removeprefix("!")
    if not root or "\0" in root or (root.startswith(("~", "$", "%")) and expand_home(root, UNKNOWN_HOMES) is None):
        raise ValueError("write the full path, like /home/agent, or a path below the home, like ~/.ssh")
    return text


def _check_roots(roots: str | list[str]) -> str | list[str]:
    if all(root.startswith("!") for root in as_tuple(roots)):
        raise ValueError("an exception like !/etc/os-release needs a folder that it is an exception of")
    return roots


def check_glob(text: str) -> str:
    """Return a glob; raise ValueError where it is none."""
    try:
        compile_globs([text])
    except ValueError as error:
        raise ValueError(f"{error}; [abc] and [a-z] stand for one character of these") from None
    return text


_LIKE_COMMANDS = "write it like curl, mkfs* or 'git push --force'"


def _check_command(text: str) -> str:
    try:
        words = shlex.split(text)
        compile_globs(words)
    except ValueError as error:
        raise ValueError(f"not a program with words ({error}); {_LIKE_COMMANDS}") from None
    if not words:
        raise ValueError(f"names no program; {_LIKE_COMMANDS}")
    return text


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
LONGEST = 31 * 86_400.0


def _read_seconds(value: Any) -> Any:
    """Return a duration in seconds: a number is one already; what is no duration is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    number, unit = value.strip()[:-1], value.strip()[-1:]
    if unit not in _UNITS or not number.isascii() or not number.isdigit():
        raise ValueError("not a duration; write it like 30s, 10m, 12h or 2d")
    return int(number) * _UNITS[unit]


type Seconds = Annotated[
    float,
    BeforeValidator(_read_seconds, json_schema_input_type=float | str),
    Field(gt=0, le=LONGEST),
]
type Word = Annotated[StrictStr, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)]
type NonEmptyStr = Annotated[StrictStr, Field(min_length=1)]
type Regex = Annotated[StrictStr, Field(min_length=1), AfterValidator(_check_regex)]
type Glob = Annotated[NonEmptyStr, AfterValidator(check_glob)]
type CommandText = Annotated[NonEmptyStr, AfterValidator(_check_command)]
type Root = Annotated[NonEmptyStr, AfterValidator(_check_root)]
type Roots = Annotated[OneOrMore[Root], AfterValidator(_check_roots)]
type Network = Annotated[NonEmptyStr, AfterValidator(_check_network)]
type Scalar = StrictStr | StrictInt | StrictFloat | StrictBool | None
type Number = StrictInt | StrictFloat
type IpClass = Literal[
    "loopback", "private", "link_local", "metadata", "multicast", "reserved", "unspecified", "public"
]
type JsonType = Literal["string", "number", "integer", "boolean", "array", "object", "null"]
type NonEmptyList[T] = Annotated[list[T], Field(min_length=1)]
type OneOrMore[T] = T | NonEmptyList[T]


class Strict(BaseModel):
    """A frozen model that refuses fields it does not know: a misspelt rule must not load as a weaker one."""

    # Deferred: the validator of a whole file has those of its parts inside, and theirs alone would never be used.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, defer_build=True)


class Bounds(Strict):
    """How long a string, array or object may be."""

    gt: StrictInt | None = Field(default=None, description="Longer than this.")
    gte: StrictInt | None = Field(default=None, description="At least this long.")
    lt: StrictInt | None = Field(default=None, description="Shorter than this.")
    lte: StrictInt | None = Field(default=None, description="At most this long.")

    @model_validator(mode="after")
    def _not_empty(self) -> Bounds:
        if not self.model_fields_set:
            raise ValueError("length needs a number, or bounds like {gt: 100}")
        return self


type Statement = Literal[
    "select",
    "insert",
    "update",
    "delete",
    "merge",
    "create",
    "drop",
    "alter",
    "truncate",
    "grant",
    "copy",
    "set",
    "show",
    "describe",
    "explain",
    "use",
    "transaction",
    "attach",
    "pragma",
    "call",
    "lock",
    "vacuum",
    "analyze",
    "other",
]


class Sql(Strict):
    """What SQL does: the kinds of its statements, and the tables and functions that it uses."""

    dialect: Literal["postgres", "mysql", "sqlite", "tsql"] = Field(description="The database's SQL.")
    statements: NonEmptyList[Statement] | None = Field(
        default=None, description="Every statement is one of these, also inside others; explain alone runs nothing."
    )
    tables: NonEmptyList[Glob] | None = Field(
        default=None, description="Globs over the tables, as the SQL names them: orders, public.*."
    )
    functions: NonEmptyList[Glob] | None = Field(
        default=None, description="Globs over functions that may be called besides those that only compute."
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Sql:
        if self.statements is None and self.tables is None:
            raise ValueError("sql needs statements or tables, such as {dialect: postgres, statements: [select]}")
        return self


class Condition(Strict):
    """A test of one argument. Where several operators are given, all must hold."""

    arg: Annotated[StrictStr, AfterValidator(lambda text: parse_arg(text).text)] = Field(
        description="The argument to test: path, arguments.path, files[*].path, **.url, or ** for every scalar."
    )
    equals: Scalar = Field(default=None, description="The value is this.")
    not_equals: Scalar = Field(default=None, description="The value is not this.")
    in_: NonEmptyList[Scalar] | None = Field(default=None, alias="in", description="The value is one of these.")
    starts_with: OneOrMore[NonEmptyStr] | None = Field(default=None, description="The text starts with one of these.")
    ends_with: OneOrMore[NonEmptyStr] | None = Field(default=None, description="The text ends with one of these.")
    contains: OneOrMore[NonEmptyStr] | None = Field(
        default=None, description="The text contains one of these, or the array has one of them as an element."
    )
    matches: OneOrMore[Regex] | None = Field(
        default=None, description="One of these RE2 expressions is found anywhere in the text."
    )
    gt: Number | None = Field(default=None, description="The number is greater than this.")
    gte: Number | None = Field(default=None, description="The number is this or greater.")
    lt: Number | None = Field(default=None, description="The number is less than this.")
    lte: Number | None = Field(default=None, description="The number is this or less.")
    exists: StrictBool | None = Field(default=None, description="Whether the call has the argument at all.")
    type: OneOrMore[JsonType] | None = Field(default=None, description="The value has one of these JSON types.")
    length: StrictInt | Bounds | None = Field(
        default=None, description="The number of characters, elements or members: exact, or bounds."
    )
    only_keys: list[NonEmptyStr] | None = Field(
        default=None,
        description="The object has no other members than these; with `arg: arguments`, the call no other arguments.",
    )
    path_under: Roots | None = Field(
        default=None,
        description="The path is one of these folders or inside one, however it is written; !/etc/x is an exception.",
    )
    host_in: OneOrMore[Glob] | None = Field(
        default=None, description="The URL or host is one of these: example.com, *.example.com, 169.254.169.254."
    )
    url_scheme: OneOrMore[NonEmptyStr] | None = Field(default=None, description="The URL has one of these schemes.")
    ip_class: OneOrMore[IpClass] | None = Field(
        default=None, description="The address, or the address in the URL or host, is in one of these classes."
    )
    host_data: Literal[True] | None = Field(
        default=None, description="The host's name carries data: labels that are encoded, random or cut to one length."
    )
    cidr: OneOrMore[Network] | None = Field(
        default=None, description="The address is in one of these ranges: 10.0.0.0/8, fd00::/8."
    )
    command: OneOrMore[CommandText] | None = Field(
        default=None, description="The shell command runs one of these programs: curl, 'rm -rf', 'git push --force'."
    )

    command_path_under: Roots | None = Field(
        default=None,
        description="The shell command names a path in one of these folders: in a word, a redirection or after cd.",
    )
    command_host_in: OneOrMore[NonEmptyStr] | None = Field(
        default=None,
        description="The shell command names one of these hosts: in a URL, as host:path or as /dev/tcp/HOST/PORT.",
    )

    sql: Sql | None = Field(default=None, description="The SQL does no more than this.")

    @model_validator(mode="after")
    def _has_operator(self) -> Condition:
        if self.model_fields_set == {"arg"}:
            names = ", ".join(written for _, written in _OPERATOR_FIELDS)
            raise ValueError(f"a condition needs an operator beside arg: one of {names}")
        empty = [name for name, operand in self.operators().items() if operand is None and not name.endswith("equals")]
        if empty:
            raise ValueError(f"{empty[0]} has no value; if you mean the home, write it in quotes: '~'")
        return self

    def operators(self) -> dict[str, Any]:
        """Return the operators given, by their name in the file."""
        given = self.model_fields_set
        return {written: getattr(self, name) for name, written in _OPERATOR_FIELDS if name in given}


_OPERATOR_FIELDS = tuple((name, field.alias or name) for name, field in Condition.model_fields.items() if name != "arg")


class All(Strict):
    """Every condition of a list holds."""

    all: NonEmptyList[When] = Field(description="The conditions that must all hold.")


class Any_(Strict):  # noqa: N801 - `Any` is taken
    """At least one condition of a list holds."""

    any: NonEmptyList[When] = Field(description="The conditions, one of which must hold.")


class Not(Strict):
    """A condition does not hold."""

    not_: When = Field(alias="not", description="The condition that must not hold.")


class Earlier(Strict):
    """What the agent did or read before: calls by server, tool and arguments, or results by label."""

    servers: NonEmptyList[Glob] | None = Field(default=None, description="Globs over server names.")
    tools: NonEmptyList[Glob] | None = Field(default=None, description="Globs over tool names.")
    methods: NonEmptyList[Glob] | None = Field(
        default=None, description="Globs over MCP methods; tools/call if absent."
    )
    where: When | None = Field(default=None, description="The condition on the arguments of that call.")
    labels: NonEmptyList[Word] | None = Field(
        default=None, description="In place of a call: a result with one of these labels."
    )

    @model_validator(mode="after")
    def _calls_or_labels(self) -> Earlier:
        calls = self.model_fields_set - {"labels"}
        if bool(calls) == (self.labels is not None):
            raise ValueError("after: names a call (servers, tools, methods, where), or labels, not both")
        if any(isinstance(part, After) for part in _leaves(self.where)):
            raise ValueError(
                "after: inside after: cannot be followed; write two rules, the first of which gives a label"
            )
        return self

    @property
    def label(self) -> str:
        """The label under which such calls are remembered. No rule can give it: it starts with a sign."""
        said = self.model_dump_json(by_alias=True, exclude_none=True)
        return "#" + hashlib.blake2b(said.encode(), digest_size=12).hexdigest()

    @property
    def remembered(self) -> frozenset[str]:
        """The labels of which one has to be there."""
        return frozenset(self.labels) if self.labels is not None else frozenset({self.label})


class After(Strict):
    """The agent did or read something before, no longer ago than this."""

    after: Earlier = Field(description="The call, or the label of a result, that came before.")
    within: Seconds = Field(default=600.0, description="How long ago at most: 30s, 10m, 12h; 10 minutes if absent.")


def _leaves(when: When | None) -> Iterator[Condition | After]:
    match when:
        case All(all=parts) | Any_(any=parts):
            for part in parts:
                yield from _leaves(part)
        case Not(not_=part):
            yield from _leaves(part)
        case Condition() | After():
            yield when


def earlier_in(when: When | None) -> Iterator[After]:
    """Return every part of a tree that is about what came before."""
    return (leaf for leaf in _leaves(when) if isinstance(leaf, After))


def conditions_in(when: When | None) -> Iterator[Condition]:
    """Return every single condition of a tree."""
    return (leaf for leaf in _leaves(when) if isinstance(leaf, Condition))


def _form(value: Any) -> str | None:
    if isinstance(value, dict):
        forms = [key for key in ("all", "any", "not", "after") if key in value] or ["condition"]
        return forms[0] if len(forms) == 1 else None
    by_model: dict[type[Any], str] = {All: "all", Any_: "any", Not: "not", After: "after", Condition: "condition"}
    return by_model.get(type(value))


type When = Annotated[
    Annotated[All, Tag("all")]
    | Annotated[Any_, Tag("any")]
    | Annotated[Not, Tag("not")]
    | Annotated[After, Tag("after")]
    | Annotated[Condition, Tag("condition")],
    Discriminator(
        _form,
        custom_error_type="when_form",
        custom_error_message=(
            "write one of all: [...], any: [...], not: {...}, after: {...} or a condition {arg: ..., ...}"
        ),
    ),
]
