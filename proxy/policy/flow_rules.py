"""Labels and flows as a policy file has them: pydantic models. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictInt, StrictStr, model_validator

from proxy.core.defaults import empty_list
from proxy.policy.arg_path import parse_arg
from proxy.policy.conditions import Glob, NonEmptyList, NonEmptyStr, OneOrMore, Seconds, Strict, When, Word, as_tuple
from proxy.policy.rule_parts import Annotations, ByName, ByPeople, Globs, Id, TestCall

if TYPE_CHECKING:
    from proxy.core.proposals import How

type ValueKind = Literal["emails", "urls", "numbers", "ids", "names"]
type Arg = Annotated[StrictStr, AfterValidator(lambda text: parse_arg(text).text)]


class Target(Strict):
    """Calls by server, tool, method and annotations, or plain requests by host. Everything given must hold."""

    servers: Globs | None = Field(default=None, description="Globs over server names.")
    tools: Globs | None = Field(default=None, description="Globs over tool names.")
    methods: Globs | None = Field(default=None, description="Globs over MCP methods; tools/call if absent.")
    annotations: Annotations | None = Field(default=None, description="Hints that the server gives about the tool.")
    hosts: NonEmptyList[Glob] | None = Field(
        default=None, description="Hosts of requests that are not MCP: *.example.com, or * for all."
    )

    @property
    def names_calls(self) -> bool:
        """Whether it speaks of MCP."""
        return any((self.servers, self.tools, self.methods, self.annotations))

    @model_validator(mode="after")
    def _not_empty(self) -> Target:
        if not (self.names_calls or self.hosts):
            raise ValueError("name servers, tools, methods, annotations or hosts")
        return self


class LabelRule(Target):
    """What a result brings: words that follow its data."""

    id: Id = Field(description="Name of the rule; unique over all files.")
    description: StrictStr = Field(default="", description="What it is for.")
    agents: Globs | None = Field(default=None, description="Globs over agent names; all agents if absent.")
    detectors: NonEmptyList[NonEmptyStr] | None = Field(
        default=None, description="Only results in which one of these finds something, such as secrets or pii.card."
    )
    only: Literal["all", "prose"] = Field(
        default="all",
        description="prose: fingerprint running text alone, not an address or a name that is a field by itself.",
    )
    gives: OneOrMore[Word] = Field(description="The labels: untrusted, private, secret, or any word.")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it gives."""
        return tuple(dict.fromkeys(as_tuple(self.gives)))


class FlowTarget(Target):
    """Where labelled data may not go."""

    arguments: NonEmptyList[Arg] | None = Field(
        default=None, description="Look only at these arguments: body, recipients, files[*].name; all if absent."
    )


class FlowRequest(Strict):
    """A plain request of a flow's test."""

    host: NonEmptyStr = Field(description="The host it goes to.")
    path: StrictStr = Field(default="/", description="The path and query.")
    body: StrictStr = Field(default="", description="The body.")


class FlowSource(TestCall):
    """A call that came before, and what its result held."""

    result: str | list[Any] | dict[str, Any] | None = Field(
        default=None, description="What the result held: text, or a JSON value."
    )
    host: NonEmptyStr | None = Field(
        default=None, description="In place of a call: the host of a page that was fetched."
    )
    ago: Seconds = Field(default=1.0, description="How long before; 1 second if absent.")


class FlowTest(Strict):
    """What came before, a call or a request, and what this flow alone should do with it."""

    name: StrictStr | None = Field(default=None, description="A name for the test.")
    after: OneOrMore[FlowSource] = Field(description="What the agent read before, one or several.")
    call: TestCall | None = Field(default=None, description="The call to decide.")
    request: FlowRequest | None = Field(default=None, description="In place of a call: the plain request to decide.")
    expect: Literal["deny", "two_phase", "report", "no_match"] = Field(description="This flow's action, or no_match.")

    @model_validator(mode="after")
    def _one_of_two(self) -> FlowTest:
        if (self.call is None) == (self.request is None):
            raise ValueError("a test of a flow has a call or a request, not both")
        return self


class FlowRule(ByName):
    """Where labelled data may not go."""

    from_: OneOrMore[Word] = Field(alias="from", description="The labels: any of them counts.")
    to: FlowTarget = Field(description="The calls and requests that it may not reach.")
    except_: Target | None = Field(default=None, alias="except", description="Calls and requests that it may reach.")
    unless: When | None = Field(
        default=None, description="A condition on the arguments under which it may: every reading has to hold."
    )
    by: Literal["session", "content"] = Field(
        default="session",
        description="session: anything after a labelled result; content: what holds the labelled data itself.",
    )
    within: Seconds = Field(default=3600.0, description="How long a label lasts: 30s, 10m, 12h, 2d.")
    scope: Literal["agent", "session", "trace"] = Field(
        default="agent",
        description="agent: all that the agent does; session or trace: only the same, where both are known.",
    )
    run: Annotated[StrictInt, Field(ge=23, le=4096)] = Field(
        default=32, description="With by: content. So many letters and digits in a row are the same data."
    )
    values: list[ValueKind] = Field(
        default=["emails", "urls", "numbers", "ids"],
        description="With by: content. Single values that are enough: emails, urls, numbers, ids, names.",
    )
    beyond: Literal["session", "sample"] = Field(
        default="session",
        description="With by: content. Of what is too large to fingerprint closely: treat it as by: session does, or "
        "look for what was sampled of it.",
    )
    action: Literal["deny", "two_phase", "report"] = Field(default="deny", description="What to do.")
    approval: ByPeople = Field(
        default=ByPeople(how="hold"), description="With action: two_phase. How the call waits, and for how many people."
    )
    tests: list[FlowTest] = Field(default_factory=empty_list, description="Tests that `interlock policy test` runs.")

    @model_validator(mode="after")
    def _fits(self) -> FlowRule:
        given = self.model_fields_set
        if self.by == "session" and (odd := sorted({"run", "values", "beyond"} & given)):
            raise ValueError(f"{odd[0]}: needs by: content")
        if "approval" in given and self.action != "two_phase":
            raise ValueError("approval: needs action: two_phase")
        if self.action == "two_phase" and self.to.hosts:
            raise ValueError("a plain request cannot wait for people; write a flow of its own for hosts, with deny")
        if self.action == "two_phase" and self.how == "propose":
            raise ValueError("approval: {how: hold}, elicit or task: nobody can propose what a flow stops")
        if self.unless is not None and not self.to.names_calls:
            raise ValueError("unless: is about arguments, and a plain request has none")
        for number, test in enumerate(self.tests, 1):
            if test.expect not in (self.action, "no_match"):
                raise ValueError(f"test {number} expects {test.expect!r}: expect {self.action!r} or 'no_match'")
        return self

    @property
    def how(self) -> How:
        return self.approval.how

    @property
    def labels(self) -> frozenset[str]:
        """The labels that it is about."""
        return frozenset(as_tuple(self.from_))
