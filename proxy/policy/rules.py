"""The rules as they are written: pydantic models of the policy file. Pure, no I/O."""

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

from proxy.model import Call, Hints
from proxy.policy.fields import Regex, Strict, Word
from proxy.policy.masking import Detector, Suppression  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.values import parse_arg

type Scalar = StrictStr | StrictInt | StrictFloat | StrictBool | None
type Number = StrictInt | StrictFloat
type Severity = Literal["info", "low", "medium", "high", "critical"]
type Mode = Literal["enforce", "shadow"]
type Secrets = Literal["allow", "report", "deny"]
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


def many[T](value: T | list[T]) -> tuple[T, ...]:
    """Give one or many as many."""
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


type Words = Word | Annotated[list[Word], Field(min_length=1)]
type Globs = Annotated[list[Word], Field(min_length=1)]
type Root = Annotated[Word, AfterValidator(_check_root)]
type Id = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
type Port = Annotated[StrictInt, Field(ge=1, le=65535)]
type Weight = Annotated[float, Field(ge=0, le=1)]
type Network = Annotated[Word, AfterValidator(_check_network)]


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
    starts_with: Words | None = Field(default=None, description="The text starts with this.")
    ends_with: Words | None = Field(default=None, description="The text ends with this.")
    contains: Words | None = Field(default=None, description="The text has this in it, or the array has this element.")
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
    host_in: Words | None = Field(
        default=None,
        description="The URL or host is one of these: example.com, *.example.com, 169.254.169.254.",
    )
    url_scheme: Words | None = Field(default=None, description="The URL's scheme is one of these.")
    ip_class: IpClass | Annotated[list[IpClass], Field(min_length=1)] | None = Field(
        default=None, description="The address, or the URL's or host's where it is one, is of one of these classes."
    )
    cidr: Network | Annotated[list[Network], Field(min_length=1)] | None = Field(
        default=None, description="The address is in one of these ranges: 10.0.0.0/8, fd00::/8."
    )
    command: Words | None = Field(
        default=None,
        description="The shell command runs one of these programs: curl, 'rm -rf', 'git push --force'.",
    )

    @model_validator(mode="after")
    def _has_operator(self) -> Condition:
        if self.model_fields_set == {"arg"}:
            raise ValueError(f"a condition needs an operator beside arg: one of {', '.join(OPERATORS)}")
        return self

    def operators(self) -> dict[str, Any]:
        """Give the operators written, by their name in the file."""
        fields = type(self).model_fields
        return {
            fields[name].alias or name: getattr(self, name)
            for name in fields
            if name != "arg" and name in self.model_fields_set
        }


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


class Annotations(Strict):
    """What a server says of a tool's nature; every hint given here must be so.

    A tool that says nothing is taken as MCP takes it: not read-only, destructive, open-world.
    """

    read_only: StrictBool | None = Field(default=None, alias="readOnlyHint", description="It changes nothing.")
    destructive: StrictBool | None = Field(default=None, alias="destructiveHint", description="It may destroy.")
    idempotent: StrictBool | None = Field(default=None, alias="idempotentHint", description="Again changes nothing.")
    open_world: StrictBool | None = Field(default=None, alias="openWorldHint", description="It reaches outside.")

    @model_validator(mode="after")
    def _not_empty(self) -> Annotations:
        if not self.model_fields_set:
            raise ValueError("annotations wants a hint, such as {destructiveHint: true}")
        return self


class TestCall(Strict):
    """The call of a test: what is not said is a tools/call by agent `agent` to server `server`."""

    __test__ = False

    method: Word = Field(default="tools/call", description="The MCP method.")
    server: Word = Field(default="server", description="The server it goes to.")
    agent: Word = Field(default="agent", description="The agent that makes it.")
    tool: StrictStr | None = Field(default=None, description="The tool's name.")
    arguments: dict[str, Any] | None = Field(default=None, description="Its arguments; of other methods the params.")
    annotations: dict[str, Any] | None = Field(default=None, description="What the server says of the tool.")

    def as_call(self) -> Call:
        """Give what the policy decides on."""
        return Call(self.method, self.server, self.agent, self.tool, self.arguments, hints=Hints.read(self.annotations))


class RuleTest(Strict):
    """A call and what this rule alone makes of it."""

    name: StrictStr | None = Field(default=None, description="What the test is called where it fails.")
    call: TestCall = Field(description="The call that is decided.")
    expect: Literal["allow", "deny", "redact", "two_phase", "no_match"] = Field(
        description="The rule's own action, or no_match."
    )
    reason: StrictStr | None = Field(
        default=None, description="The reason code that must be given, such as wrong_type."
    )


class _Rule(Strict):
    id: Id = Field(description="Its name in decisions, records and denials; unique over all files.")
    description: StrictStr = Field(default="", description="What the agent is told where the rule denies.")
    mode: Mode = Field(default="enforce", description="shadow: record what the rule would have done, do nothing.")
    severity: Severity = Field(default="medium", description="Which of several denials speaks, and what to filter by.")
    servers: Globs | None = Field(default=None, description="Globs; absent means all.")
    tools: Globs | None = Field(default=None, description="Globs; absent means all.")
    agents: Globs | None = Field(default=None, description="Globs; absent means all.")
    methods: Globs | None = Field(
        default=None, description="MCP methods, such as resources/read; absent means tools/call only."
    )
    annotations: Annotations | None = Field(
        default=None, description="What the server must say of the tool, such as {destructiveHint: true}."
    )
    when: When | None = Field(default=None, description="What must hold of the arguments; absent means nothing.")
    tests: list[RuleTest] = Field(default_factory=list, description="What `interlock policy test` checks.")

    @model_validator(mode="after")
    def _tests_fit(self) -> _Rule:
        action = getattr(self, "action", "")
        for number, test in enumerate(self.tests):
            if test.expect not in (action, "no_match"):
                raise ValueError(
                    f"test {number + 1} expects {test.expect!r}, but a test speaks of its own rule: "
                    f"expect {action!r} or 'no_match'"
                )
        return self


class AllowRule(_Rule):
    """Let a call through where the default is deny."""

    action: Literal["allow"] = Field(description="This kind of rule.")


class DenyRule(_Rule):
    """Refuse a call."""

    action: Literal["deny"] = Field(description="This kind of rule.")
    respond: Literal["result", "error"] = Field(
        default="result", description="result: a tool result with isError; error: a JSON-RPC error."
    )


class RedactRule(_Rule):
    """Mask secrets and personal data."""

    action: Literal["redact"] = Field(description="This kind of rule.")
    on: Annotated[list[Literal["arguments", "result"]], Field(min_length=1)] = Field(
        default=["arguments", "result"], description="Which way it looks."
    )
    detectors: Annotated[list[Word], Field(min_length=1)] = Field(
        description="What to look for: a family such as secrets or pii, or one such as pii.card."
    )
    redact: Literal["mask", "deny", "report"] = Field(
        default="mask", description="mask what is found, deny the call, or only report."
    )


class Weights(Strict):
    """How much each signal counts in a proposal's score."""

    output_instability: Weight = Field(default=0.5, description="How far two candidate outputs differ.")
    numeric_variance: Weight = Field(default=0.3, description="How far the numbers in them differ.")
    prompt_drift: Weight = Field(default=0.2, description="How far the prompt is from the tool's baseline.")

    @model_validator(mode="after")
    def _some_weight(self) -> Weights:
        if self.output_instability + self.numeric_variance + self.prompt_drift <= 0:
            raise ValueError("at least one weight must be above 0")
        return self


class TwoPhaseRule(_Rule):
    """Make a tool two-phase: propose, then commit."""

    action: Literal["two_phase"] = Field(description="This kind of rule.")
    approval: Literal["auto", "human"] = Field(
        default="auto", description="human: a proposal waits until an operator approves it."
    )
    review: StrictBool = Field(
        default=False, description="Let an operator decide on a proposal that would be blocked by its score."
    )
    block_threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.45, description="The score from which a proposal is blocked."
    )
    weights: Weights = Field(default_factory=Weights, description="How much each signal counts.")
    token_seconds: Annotated[float, Field(ge=1, le=86_400)] = Field(
        default=300, description="How long a commit token may be used."
    )
    approval_seconds: Annotated[float, Field(ge=1, le=2_592_000)] = Field(
        default=3600, description="How long a proposal waits for an operator."
    )

    @model_validator(mode="after")
    def _speaks_of_tools(self) -> TwoPhaseRule:
        if self.methods not in (None, ["tools/call"]):
            raise ValueError("only tools can be two-phase; drop methods:, or make a deny rule for other methods")
        return self


type Rule = Annotated[AllowRule | DenyRule | RedactRule | TwoPhaseRule, Field(discriminator="action")]


class EgressCall(Strict):
    """The request of an egress test."""

    host: Word = Field(description="The host it goes to.")
    port: Port = Field(default=443, description="The port.")
    method: Word = Field(default="GET", description="The HTTP method.")
    addresses: list[Word] = Field(default_factory=list, description="The addresses that the host's name leads to.")
    agent: Word = Field(default="agent", description="The agent that makes it.")


class EgressTest(Strict):
    """A request and what this egress rule alone makes of it."""

    request: EgressCall = Field(description="The request that is decided.")
    expect: Literal["allow", "deny", "secrets", "no_match"] = Field(description="The rule's own action, or no_match.")


class EgressRule(Strict):
    """Who may be talked to, by host, address, port and HTTP method; all that is given must hold.

    A rule with `action: secrets` opens and closes nothing: it says what becomes of secrets there.
    """

    id: Id = Field(description="Its name in decisions, records and denials; unique over all files.")
    description: StrictStr = Field(default="", description="What the caller is told where the rule denies.")
    action: Literal["allow", "deny", "secrets"] = Field(description="What becomes of what matches.")
    secrets: Secrets | None = Field(
        default=None, description="action: secrets only: let secrets pass there, report them, or refuse the request."
    )
    mode: Mode = Field(default="enforce", description="shadow: record what the rule would have done, do nothing.")
    severity: Severity = Field(default="medium", description="Which of several denials speaks, and what to filter by.")
    agents: Globs | None = Field(default=None, description="Globs; absent means all.")
    hosts: Globs | None = Field(default=None, description="Hosts: example.com, *.example.com, 169.254.169.254.")
    cidrs: Annotated[list[Network], Field(min_length=1)] | None = Field(
        default=None, description="Ranges, one of which every address of the host must be in; to deny, any."
    )
    ports: Annotated[list[Port], Field(min_length=1)] | None = Field(default=None, description="Absent means all.")
    methods: Globs | None = Field(default=None, description="HTTP methods; absent means all.")
    tests: list[EgressTest] = Field(default_factory=list, description="What `interlock policy test` checks.")

    @model_validator(mode="after")
    def _secrets_has_its_action(self) -> EgressRule:
        if (self.action == "secrets") != (self.secrets is not None):
            raise ValueError("action: secrets and secrets: allow, report or deny go together, in a rule of their own")
        return self


class Egress(Strict):
    """Plain HTTP and any other traffic through the proxy."""

    default: Literal["allow", "deny"] = Field(default="allow", description="What happens where no rule speaks.")
    metadata: Literal["allow", "deny"] = Field(default="deny", description="Cloud metadata services.")
    link_local: Literal["allow", "deny"] = Field(default="deny", description="169.254.0.0/16 and fe80::/10.")
    private: Literal["allow", "deny"] = Field(default="allow", description="Private networks: 10.0.0.0/8 and the like.")
    loopback: Literal["allow", "deny"] = Field(default="allow", description="The proxy's own machine.")
    secrets: Secrets = Field(
        default="allow",
        description="Secrets in requests that are not MCP: let them pass, report them, or refuse the request.",
    )
    rules: list[EgressRule] = Field(default_factory=list, description="Rules, in any order.")


class Pins(Strict):
    """What becomes of tools that change after they were first seen."""

    mode: Literal["off", "record", "enforce"] = Field(
        default="record",
        description="record: tell of new and changed tools; enforce: hide and deny them until approved.",
    )
    hidden_characters: Literal["record", "enforce"] = Field(
        default="enforce",
        description="enforce: hide and deny tools described with invisible characters; record: only tell.",
    )


class PolicyFile(Strict):
    """One policy file."""

    version: Literal[1] = Field(description="Of this format.")
    default: Literal["allow", "deny"] | None = Field(
        default=None, description="What happens to a call no rule speaks of; deny where no file says."
    )
    rules: list[Rule] = Field(default_factory=list, description="Rules, in any order: every one that matches counts.")
    egress: Egress | None = Field(default=None, description="What is not MCP.")
    pins: Pins | None = Field(default=None, description="Tools that change.")
    detectors: list[Detector] = Field(default_factory=list, description="Detectors beside the built-in ones.")
    suppressions: list[Suppression] = Field(
        default_factory=list, description="Findings that redact rules let be; the record masks them all the same."
    )


for _model in (All, Any_, Not, AllowRule, DenyRule, RedactRule, TwoPhaseRule, PolicyFile):
    _model.model_rebuild()
