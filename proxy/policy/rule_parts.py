"""What several kinds of rules have in common, as a policy file has it: pydantic models. Pure, no I/O."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr, model_validator

from proxy.core.identity import Identity
from proxy.core.model import Call, Hints
from proxy.core.proposals import How  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.agents import Agents  # noqa: TC001  pydantic reads annotations when it runs
from proxy.policy.conditions import Glob, NonEmptyList, NonEmptyStr, Strict

type Severity = Literal["info", "low", "medium", "high", "critical"]
type Mode = Literal["enforce", "shadow"]
type Globs = NonEmptyList[Glob]
type Id = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Annotations(Strict):
    """What a server declares about a tool. Every hint given here must be as stated.

    A tool without annotations has the defaults of MCP: not read-only, destructive, open-world.
    """

    read_only: StrictBool | None = Field(default=None, alias="readOnlyHint", description="Changes nothing.")
    destructive: StrictBool | None = Field(default=None, alias="destructiveHint", description="May destroy something.")
    idempotent: StrictBool | None = Field(default=None, alias="idempotentHint", description="Safe to repeat.")
    open_world: StrictBool | None = Field(default=None, alias="openWorldHint", description="Reaches other systems.")

    @model_validator(mode="after")
    def _not_empty(self) -> Annotations:
        if not self.model_fields_set:
            raise ValueError("annotations needs a hint, such as {destructiveHint: true}")
        return self


class TestCall(Strict):
    """The call of a test. By default a tools/call by agent `agent` to server `server`."""

    __test__ = False

    method: NonEmptyStr = Field(default="tools/call", description="The MCP method.")
    server: NonEmptyStr = Field(default="server", description="The server that is called.")
    agent: NonEmptyStr = Field(default="agent", description="The agent that calls.")
    tool: StrictStr | None = Field(default=None, description="The name of the tool.")
    arguments: dict[str, Any] | None = Field(default=None, description="The arguments; for other methods the params.")
    annotations: dict[str, Any] | None = Field(default=None, description="What the server declares about the tool.")
    claims: dict[str, Any] | None = Field(default=None, description="The claims of the agent's token.")
    provider: NonEmptyStr = Field(default="provider", description="Who vouches for the claims.")

    def as_call(self) -> Call:
        hints, identity = Hints.read(self.annotations), as_identity(self.claims, self.provider)
        return Call(self.method, self.server, self.agent, self.tool, self.arguments, hints, identity=identity)


def as_identity(claims: dict[str, Any] | None, provider: str) -> Identity | None:
    """Return what the claims of a test stand for; None without any."""
    if claims is None:
        return None
    key = json.dumps(claims, sort_keys=True, default=str)
    return Identity(provider, str(claims.get("iss", "")), str(claims.get("sub", "")), key, claims)


class NamedRule(Strict):
    """What every rule has."""

    id: Id = Field(description="Name of the rule in decisions, records and denials; unique over all files.")
    description: StrictStr = Field(default="", description="The message to the caller when the rule denies.")
    mode: Mode = Field(default="enforce", description="shadow: only record what the rule would have done.")
    severity: Severity = Field(
        default="medium", description="When several rules deny, the most severe one is reported; also a filter."
    )


class ByName(NamedRule):
    """A rule that knows agents by their names alone."""

    agents: Globs | None = Field(default=None, description="Globs over agent names; all agents if absent.")


class ByClaims(NamedRule):
    """A rule that knows agents by their names, or by their claims."""

    agents: Agents | None = Field(
        default=None,
        description="Which agents: globs over their names, or {claim: groups, in: [sre]}; all agents if absent.",
    )


type People = Annotated[StrictInt, Field(ge=1, le=20)]


class ByPeople(Strict):
    """People approve each call: how the agent waits for them, and how many there must be."""

    how: How = Field(
        default="propose",
        description="propose: the agent proposes and commits; hold: the call waits; elicit: the client is sent to a "
        "page; task: the client gets a task.",
    )
    people: People = Field(default=1, description="How many operators have to approve.")
