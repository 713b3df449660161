"""The rules as they are written: pydantic models of the policy file. Pure, no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr, model_validator

from proxy.core.model import Call, Hints
from proxy.policy.conditions import Network, When  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.detector_rules import Detector, Suppression  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.fields import NonEmptyStr, Strict

type Severity = Literal["info", "low", "medium", "high", "critical"]
type Mode = Literal["enforce", "shadow"]
type Secrets = Literal["allow", "report", "deny"]
type Globs = Annotated[list[NonEmptyStr], Field(min_length=1)]
type Id = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
type Port = Annotated[StrictInt, Field(ge=1, le=65535)]
type Weight = Annotated[float, Field(ge=0, le=1)]


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

    method: NonEmptyStr = Field(default="tools/call", description="The MCP method.")
    server: NonEmptyStr = Field(default="server", description="The server it goes to.")
    agent: NonEmptyStr = Field(default="agent", description="The agent that makes it.")
    tool: StrictStr | None = Field(default=None, description="The tool's name.")
    arguments: dict[str, Any] | None = Field(default=None, description="Its arguments; of other methods the params.")
    annotations: dict[str, Any] | None = Field(default=None, description="What the server says of the tool.")

    def as_call(self) -> Call:
        """Return what the policy decides on."""
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
    detectors: Annotated[list[NonEmptyStr], Field(min_length=1)] = Field(
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

    host: NonEmptyStr = Field(description="The host it goes to.")
    port: Port = Field(default=443, description="The port.")
    method: NonEmptyStr = Field(default="GET", description="The HTTP method.")
    addresses: list[NonEmptyStr] = Field(
        default_factory=list, description="The addresses that the host's name leads to."
    )
    agent: NonEmptyStr = Field(default="agent", description="The agent that makes it.")


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


for _model in (AllowRule, DenyRule, RedactRule, TwoPhaseRule, PolicyFile):
    _model.model_rebuild()
