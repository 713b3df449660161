"""The rules as a policy file has them: pydantic models. Pure, no I/O.

`interlock policy schema` and docs/policy-reference.md are made from the descriptions here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StrictBool, StrictInt, StrictStr, Tag, model_validator

from proxy.core.defaults import empty_dict, empty_list
from proxy.core.external import Ask
from proxy.core.proposals import How  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.agents import ClaimMatch, entries
from proxy.policy.carried import CHECKS, HOST_CHECKS
from proxy.policy.conditions import (
    Glob,
    Network,
    NonEmptyList,
    NonEmptyStr,
    OneOrMore,
    Strict,
    When,
    as_tuple,
    conditions_in,
)
from proxy.policy.detector_rules import Detector, Suppression  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.flow_rules import FlowRule, LabelRule  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.incoming import IncomingRule  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.limit_values import Amount, Per, Sum, Window  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.observed import ObservedRule
from proxy.policy.rule_parts import Annotations, ByClaims, ByPeople, Globs, Mode, People, TestCall
from proxy.sandbox.profile import SandboxProfile  # noqa: TC001  pydantic reads annotations when it runs


def _check_home(text: str) -> str:
    if not text.startswith("/") and text[1:3] not in (":/", ":\\"):
        raise ValueError("write the full path of a folder, like /home/me")
    return text.replace("\\", "/").rstrip("/")


type Secrets = Literal["allow", "report", "deny"]
type AllowOrDeny = Literal["allow", "deny"]
type Guarded = Literal["allow", "report", "deny"]
type Carried = Annotated[StrictStr, Field(pattern=r"^!?[a-z]+(?:[_.-][a-z0-9]+)*$", max_length=64)]
type Port = Annotated[StrictInt, Field(ge=1, le=65535)]
type Home = Annotated[NonEmptyStr, AfterValidator(_check_home)]
type Weight = Annotated[float, Field(ge=0, le=1)]


type Expected = Annotated[
    StrictStr,
    Field(pattern=r"^(?:redact|no_match|(?:allow|deny|two_phase|external)(?: by [A-Za-z0-9][A-Za-z0-9._-]*)?)$"),
]
type Outcome = Annotated[
    StrictStr, Field(pattern=r"^(?:allow|deny|two_phase|external)(?: by [A-Za-z0-9][A-Za-z0-9._-]*)?$")
]
type Answer = Literal["allow", "deny", "timeout", "unavailable", "answer"]
type Answers = dict[NonEmptyStr, Answer]


class PolicyTest(Strict):
    """A call, and what the whole policy should do with it."""

    __test__ = False

    name: StrictStr | None = Field(default=None, description="A name for the test.")
    call: TestCall = Field(description="The call to decide.")
    expect: Outcome = Field(description="The outcome, and if you like the rule: allow, deny by RULE, allow by default.")
    reason: StrictStr | None = Field(default=None, description="The expected reason code, such as default_deny.")
    answers: Answers | None = Field(
        default=None,
        description="What services answer that external rules ask: {opa: allow}. Without it nobody is asked, and the "
        "outcome of a call that needs an answer is external.",
    )


class RuleTest(Strict):
    """A call, and what this rule alone should do with it."""

    name: StrictStr | None = Field(default=None, description="A name for the test.")
    call: TestCall = Field(description="The call to decide.")
    expect: Expected = Field(
        description="This rule's action, or no_match; `deny by RULE` and `allow by default` ask the whole policy."
    )
    reason: StrictStr | None = Field(default=None, description="The expected reason code, such as wrong_type.")
    answers: Answers | None = Field(default=None, description="What services answer, where the whole policy is asked.")


class _Matching(ByClaims):
    servers: Globs | None = Field(default=None, description="Globs over server names; all servers if absent.")
    tools: Globs | None = Field(default=None, description="Globs over tool names; all tools if absent.")
    methods: Globs | None = Field(
        default=None,
        description="Globs over MCP methods, such as resources/read. If absent, a redact rule covers every method, "
        "in both directions; any other rule covers only tools/call.",
    )
    annotations: Annotations | None = Field(
        default=None, description="Hints that the server must give, such as {destructiveHint: true}."
    )
    when: When | None = Field(default=None, description="The condition on the arguments; none if absent.")


class _Rule(_Matching):
    tests: list[RuleTest] = Field(default_factory=empty_list, description="Tests that `interlock policy test` runs.")

    @model_validator(mode="after")
    def _tests_fit(self) -> _Rule:
        action = getattr(self, "action", "")
        for number, test in enumerate(self.tests):
            if " by " not in test.expect and test.expect not in (action, "no_match"):
                raise ValueError(
                    f"test {number + 1} expects {test.expect!r}, but it tests this rule alone: "
                    f"expect {action!r} or 'no_match'"
                )
        return self


class AllowRule(_Rule):
    """Allow a call where the default is deny."""

    action: Literal["allow"] = Field(description="This kind of rule.")

    @model_validator(mode="after")
    def _names_arguments(self) -> AllowRule:
        for condition in conditions_in(self.when):
            # A value that no selector takes for a path would be allowed unread.
            if condition.arg.startswith("@"):
                raise ValueError(f"an allow cannot rely on {condition.arg}; name the argument, like arg: path")
            # `~` stands for every home there may be, also that of somebody else.
            if any(root.startswith(("~", "$", "%")) for root in as_tuple(condition.path_under or "")):
                raise ValueError("an allow cannot rely on ~; write the full path of the folder")
        return self

    @model_validator(mode="after")
    def _names_agents(self) -> AllowRule:
        if any(isinstance(one, ClaimMatch) and one.not_in for one in entries(self.agents)):
            raise ValueError("an allow cannot rely on not_in:, which fits agents that nobody vouches for; write in:")
        return self


class DenyRule(_Rule):
    """Refuse a call."""

    action: Literal["deny"] = Field(description="This kind of rule.")
    respond: Literal["result", "error"] = Field(
        default="result", description="How to refuse: result, a tool result with isError; error, a JSON-RPC error."
    )


class RedactRule(_Rule):
    """Mask secrets and personal data."""

    action: Literal["redact"] = Field(description="This kind of rule.")
    on: NonEmptyList[Literal["arguments", "result"]] = Field(
        default=["arguments", "result"],
        description="What to scan: arguments is all that the client sends, result is all that the server sends.",
    )
    detectors: NonEmptyList[NonEmptyStr] = Field(
        description="What to look for: a family such as secrets or pii, or one detector such as pii.card."
    )
    redact: Literal["mask", "deny", "report"] = Field(
        default="mask", description="What to do on a finding: mask it, deny the call, or only report it."
    )


class Weights(Strict):
    """How much each signal counts in a proposal's score."""

    output_instability: Weight = Field(default=0.5, description="How much two candidate outputs differ.")
    numeric_variance: Weight = Field(default=0.3, description="How much the numbers in them differ.")
    prompt_drift: Weight = Field(default=0.2, description="How far the prompt is from the tool's baseline.")

    @model_validator(mode="after")
    def _some_weight(self) -> Weights:
        if self.output_instability + self.numeric_variance + self.prompt_drift <= 0:
            raise ValueError("at least one weight must be above 0")
        return self


class TwoPhaseRule(_Rule):
    """Make a tool two-phase: propose, then commit."""

    action: Literal["two_phase"] = Field(description="This kind of rule.")
    approval: Literal["auto", "human"] | ByPeople = Field(
        default="auto",
        description="human: a proposal waits for an operator; {how: hold, people: 2} also says how and for how many.",
    )
    approvals: People | None = Field(
        default=None, description="How many operators have to approve; the same as people: in approval."
    )
    own: Literal["allow", "refuse"] = Field(
        default="allow", description="refuse: an operator who runs the agent may not approve its proposals."
    )
    hold_seconds: float | None = Field(
        default=None, ge=1, le=86_400, description="How long a call is held; absent: the setting hold_timeout."
    )
    review: StrictBool = Field(
        default=False, description="Let an operator approve a proposal that its score would block."
    )
    block_threshold: Weight = Field(default=0.45, description="A proposal with this score or more is blocked.")
    weights: Weights = Field(default_factory=Weights, description="How much each signal counts.")
    token_seconds: float = Field(default=300, ge=1, le=86_400, description="How long a commit token is valid.")
    approval_seconds: float = Field(
        default=3600, ge=1, le=2_592_000, description="How long a proposal waits for an operator."
    )

    @model_validator(mode="after")
    def _only_tools(self) -> TwoPhaseRule:
        if self.methods not in (None, ["tools/call"]):
            raise ValueError("only tools can be two-phase; remove methods:, or write a deny rule for other methods")
        return self

    @model_validator(mode="after")
    def _people_agree(self) -> TwoPhaseRule:
        if isinstance(self.approval, ByPeople) and "people" in self.approval.model_fields_set and self.approvals:
            raise ValueError("approvals: and people: say the same; write one of them")
        asked = {"approvals", "own"} & self.model_fields_set
        if asked and self.approval == "auto" and not self.review:
            raise ValueError(f"{min(asked)}: is about people, and no person approves here; write approval: human")
        if self.hold_seconds is not None and self.how != "hold":
            raise ValueError("hold_seconds: needs approval: {how: hold}")
        return self

    @property
    def by_people(self) -> bool:
        """Whether people approve each call."""
        return self.approval != "auto"

    @property
    def how(self) -> How:
        return self.approval.how if isinstance(self.approval, ByPeople) else "propose"

    @property
    def people(self) -> int:
        """How many operators have to approve."""
        given = self.approval.people if isinstance(self.approval, ByPeople) else 1
        return self.approvals or given


class ExternalRule(_Rule):
    """Ask another service, such as OPA: its yes is an allow, and its no, or no answer in time, is a deny."""

    action: Literal["external"] = Field(description="This kind of rule.")
    service: NonEmptyStr = Field(
        description="The service to ask, by its name in the file that the setting external names."
    )
    arguments: Literal["masked", "raw", "none"] = Field(
        default="masked",
        description="What the service gets of the arguments: with secrets masked, as they are, or nothing.",
    )
    respond: Literal["result", "error"] = Field(
        default="result", description="How to refuse: result, a tool result with isError; error, a JSON-RPC error."
    )

    def ask(self) -> Ask:
        """Return what the rule asks."""
        return Ask(self.id, self.service, self.arguments, shadow=self.mode == "shadow")


type Rule = Annotated[AllowRule | DenyRule | RedactRule | TwoPhaseRule | ExternalRule, Field(discriminator="action")]


def _about(rule: Any) -> str:
    on = rule.get("on") if isinstance(rule, dict) else getattr(rule, "on", None)
    return "observed" if on == "observed" else "call"


# The same list has rules on calls, and on what servers are observed to do in them.
type AnyRule = Annotated[Annotated[Rule, Tag("call")] | Annotated[ObservedRule, Tag("observed")], Discriminator(_about)]


def covered_methods(rule: Rule) -> list[str]:
    """Return the globs over the methods that a rule covers."""
    # A secret is as secret in a prompt, a task or a log message as in a tool's result. A condition on arguments, on
    # the other hand, is written for the arguments of tools.
    return rule.methods or (["*"] if isinstance(rule, RedactRule) else ["tools/call"])


def describe_coverage(rule: Rule) -> str:
    """Say which messages a rule covers, for people."""
    tools = "" if rule.tools is None else f" of {', '.join(rule.tools)}"
    if rule.methods is not None:
        return f"{', '.join(rule.methods)}{tools}"
    if not isinstance(rule, RedactRule):
        return f"tools/call{tools}"
    ways = {"arguments": "from the client", "result": "from the server"}
    said = " and ".join(ways[way] for way in ("arguments", "result") if way in rule.on)
    if rule.tools is None or "*" in rule.tools:
        return f"every method, {said}"
    return f"tools/call{tools} and the tasks that it makes, {said}"


class EgressCall(Strict):
    """The request of an egress test."""

    host: NonEmptyStr = Field(description="The host it goes to.")
    port: Port = Field(default=443, description="The port.")
    method: NonEmptyStr = Field(default="GET", description="The HTTP method.")
    addresses: list[NonEmptyStr] = Field(
        default_factory=empty_list, description="The addresses that the host resolves to."
    )
    agent: NonEmptyStr = Field(default="agent", description="The agent that sends it.")
    claims: dict[str, Any] | None = Field(default=None, description="The claims of the agent's token.")
    provider: NonEmptyStr = Field(default="provider", description="Who vouches for the claims.")


class EgressTest(Strict):
    """A request, and what this egress rule alone should do with it."""

    request: EgressCall = Field(description="The request to decide.")
    expect: Literal["allow", "deny", "secrets", "scan", "no_match"] = Field(
        description="The action of this rule, scan where it would look into the request, or no_match."
    )


class EgressRule(ByClaims):
    """Which hosts may be reached, by host, address, port and HTTP method. Everything given must hold.

    A rule with `action: secrets` neither allows nor denies: it says what happens to secrets in requests to a host. A
    deny with `carries` refuses only requests that carry one of these things; an allow with `carries` lets its hosts
    get them, whatever another rule says.
    """

    action: Literal["allow", "deny", "secrets"] = Field(description="What to do with a request that matches.")
    secrets: Secrets | None = Field(
        default=None, description="With action: secrets only. Allow secrets, report them, or deny the request."
    )
    hosts: Globs | None = Field(default=None, description="Hosts, such as *.example.com or 10.0.0.1; all if absent.")
    cidrs: NonEmptyList[Network] | None = Field(
        default=None, description="Address ranges. An allow needs every address of the host in one; a deny, any."
    )
    ports: NonEmptyList[Port] | None = Field(default=None, description="Ports; all if absent.")
    methods: Globs | None = Field(default=None, description="HTTP methods; all if absent.")
    carries: NonEmptyList[Carried] | None = Field(
        default=None,
        description="What the request carries: a detector or family such as secrets, wallet or pii.card, or one of "
        + ", ".join(CHECKS)
        + ". `!pii.phone` makes an exception.",
    )
    in_: NonEmptyList[Literal["url", "headers", "credentials", "body"]] | None = Field(
        default=None,
        alias="in",
        description="Where to look for it. If absent, everywhere but in credentials, which are the headers that one "
        "logs in with; an allow covers these, too.",
    )
    tests: list[EgressTest] = Field(default_factory=empty_list, description="Tests that `interlock policy test` runs.")

    @model_validator(mode="after")
    def _secrets_has_its_action(self) -> EgressRule:
        if (self.action == "secrets") != (self.secrets is not None):
            raise ValueError("action: secrets and secrets: allow, report or deny go together, in a rule of their own")
        return self

    @model_validator(mode="after")
    def _looks_for_something(self) -> EgressRule:
        if self.in_ is not None and self.carries is None:
            raise ValueError("in: says where to look for what carries: names; write both")
        if self.carries is not None and self.action == "secrets":
            raise ValueError("carries: needs action: deny or allow")
        if self.action == "allow" and set(self.carries or ()) & set(HOST_CHECKS) and self.hosts is None:
            raise ValueError("an allow of what hosts' names carry needs hosts:")
        return self


class EgressPolicy(Strict):
    """Plain HTTP and any other traffic through the proxy that is not MCP."""

    default: Guarded = Field(
        default="allow", description="For requests that no rule matches: allow, deny, or allow and report."
    )
    metadata: Guarded = Field(default="deny", description="Cloud metadata services.")
    link_local: Guarded = Field(default="deny", description="169.254.0.0/16 and fe80::/10.")
    private: Guarded = Field(default="allow", description="Private networks: 10.0.0.0/8 and the like.")
    loopback: Guarded = Field(default="allow", description="The proxy's own machine.")
    secrets: Secrets = Field(
        default="allow", description="Secrets in requests that are not MCP: allow, report, or deny the request."
    )
    rules: list[EgressRule] = Field(default_factory=empty_list, description="The rules, in any order.")


class Pins(Strict):
    """What to do about tools that change after they were first seen."""

    mode: Literal["off", "record", "enforce"] = Field(
        default="record",
        description="record: record new and changed tools; enforce: also hide and deny them until approved.",
    )
    hidden_characters: Literal["record", "enforce"] = Field(
        "enforce", description="enforce: hide and deny tools whose description has invisible characters."
    )
    drift: Literal["tolerant", "strict"] = Field(
        default="strict",
        description="tolerant: an edit that changes no meaning, such as a typo or a new optional parameter, is "
        "recorded and accepted; strict: every edit is a change.",
    )
    unlisted: Literal["allow", "deny"] = Field(
        default="deny", description="With mode: enforce only. Whether tools may be called that were never listed."
    )


class LimitTest(Strict):
    """A call, and whether this limit counts it."""

    name: StrictStr | None = Field(default=None, description="A name for the test.")
    call: TestCall = Field(description="The call to count.")
    expect: Literal["counts", "no_match", "deny"] = Field(
        description="counts: the call uses up part of the limit; deny: its amount cannot be read; no_match."
    )
    amount: Amount | None = Field(default=None, description="How much of a sum the call uses up.")
    reason: StrictStr | None = Field(default=None, description="With deny: the expected reason, such as limit_amount.")


class Limit(_Matching):
    """How many calls there may be, or how much an argument of them may add up to, in a sliding window of time.

    Only calls that are forwarded count. Exactly one of count, sum and concurrency is given.
    """

    action: Literal["deny", "two_phase", "report"] = Field(
        default="deny",
        description="What becomes of a call too many: deny; two_phase, a person decides; report, it is only recorded.",
    )
    count: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="The most calls in the window."
    )
    sum: Sum | None = Field(default=None, description="An argument, and the most that it may add up to.")
    concurrency: Annotated[StrictInt, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="The most calls under way at the same time; it has no window."
    )
    within: Window | None = Field(default=None, description="The window: 90s, 20m, 1h, 7d; it slides with every call.")
    per: OneOrMore[Per] = Field(
        default="agent",
        description="Whose calls are counted together: those of one agent, server, tool, deciding rule or session, or "
        "of several of these together; all: every call that the limit matches.",
    )
    respond: Literal["result", "error"] = Field(
        default="result", description="How to refuse: result, a tool result with isError; error, a JSON-RPC error."
    )
    approval: Literal["human"] | ByPeople = Field(
        default_factory=lambda: ByPeople(how="hold"),
        description="With action: two_phase, how people decide on a call too many, as in a two_phase rule.",
    )
    tests: list[LimitTest] = Field(default_factory=empty_list, description="Tests that `interlock policy test` runs.")

    @property
    def shares(self) -> tuple[Per, ...]:
        """Whose calls are counted together."""
        return tuple(self.per) if isinstance(self.per, list) else (self.per,)

    @model_validator(mode="after")
    def _one_measure(self) -> Limit:
        given = [name for name in ("count", "sum", "concurrency") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("a limit has one of count:, sum: and concurrency:")
        if (self.within is None) != (self.concurrency is not None):
            raise ValueError("count: and sum: need within:, such as within: 1h; concurrency: has none")
        if "approval" in self.model_fields_set and self.action != "two_phase":
            raise ValueError("approval: needs action: two_phase")
        if self.action == "two_phase" and self.methods not in (None, ["tools/call"]):
            raise ValueError("only tools can be two-phase; remove methods:, or use action: deny")
        if self.concurrency is not None and self.action == "two_phase":
            raise ValueError("a person cannot decide on concurrency:, which lasts for moments; use deny or report")
        return self


class PolicyFile(Strict):
    """One policy file. Several files in a folder are one policy."""

    version: Literal[1] = Field(description="Version of this format.")
    mode: Mode = Field(
        default="enforce",
        description="shadow: this file, and what it includes, only records: nothing is denied, masked or held.",
    )
    include: list[NonEmptyStr] = Field(
        default_factory=empty_list, description="Other policy files that belong to this one, relative to its folder."
    )
    default: AllowOrDeny | None = Field(default=None, description="For calls that no rule matches; deny if absent.")
    home: OneOrMore[Home] | None = Field(
        default=None,
        description="What ~ and $HOME stand for on the servers, such as /home/me; if absent, any usual home.",
    )
    rules: list[AnyRule] = Field(default_factory=empty_list, description="The rules, in any order: every match counts.")
    limits: list[Limit] = Field(
        default_factory=empty_list, description="Budgets: how many calls, or how much, over time."
    )
    egress: EgressPolicy | None = Field(default=None, description="Traffic that is not MCP.")
    pins: Pins | None = Field(default=None, description="Tools that change.")
    incoming: list[IncomingRule] = Field(
        default_factory=empty_list, description="Text that speaks to the model, in what servers, pages and agents say."
    )
    detectors: list[Detector] = Field(default_factory=empty_list, description="Detectors besides the built-in ones.")
    tests: list[PolicyTest] = Field(
        default_factory=empty_list, description="Tests of the whole policy, all files together."
    )
    suppressions: list[Suppression] = Field(
        default_factory=empty_list, description="Findings that redact rules ignore; records mask them all the same."
    )
    labels: list[LabelRule] = Field(
        default_factory=empty_list, description="What results bring: labels that follow data."
    )
    flows: list[FlowRule] = Field(default_factory=empty_list, description="Where labelled data may not go.")

    @property
    def call_rules(self) -> list[Rule]:
        """The rules on calls."""
        return [rule for rule in self.rules if not isinstance(rule, ObservedRule)]

    @property
    def observed_rules(self) -> list[ObservedRule]:
        """The rules on what servers are observed to do."""
        return [rule for rule in self.rules if isinstance(rule, ObservedRule)]

    sandbox: dict[Glob, SandboxProfile] = Field(
        default_factory=empty_dict, description="What local servers may touch: a profile by server name, with globs."
    )
