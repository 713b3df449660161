"""Rules on what comes in: which texts of servers, pages and other agents are looked at, and what a finding does.

Pure, no I/O. What speaks to a model is found elsewhere (`proxy/injection`); here is only who asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol

from pydantic import Field, StrictStr, model_validator

from proxy.core.defaults import empty_list
from proxy.core.model import Place, Screening
from proxy.policy.conditions import Glob, NonEmptyList, Strict
from proxy.policy.globs import compile_globs
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

type Kind = Literal[
    "override",
    "order",
    "addresses-model",
    "secrecy",
    "asks-secret",
    "sends-out",
    "claims-priority",
    "runs-command",
    "fake-turn",
    "hidden",
    "disguised",
]
type Label = Annotated[StrictStr, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
type Id = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
type Globs = NonEmptyList[Glob]
CONFIDENCES: Final = ("possible", "likely", "sure")
_MAX_KNOWN: Final = 4096


class IncomingTest(Strict):
    """A text that comes in, and what this rule alone does with it."""

    text: StrictStr = Field(description="The text, as a tool's description, a result or a page has it.")
    expect: Literal["flag", "strip", "withhold", "no_match"] = Field(description="This rule's action, or no_match.")


class IncomingRule(Strict):
    """What becomes of text that speaks to the model, in what servers, pages and other agents say."""

    id: Id = Field(description="Name of the rule in decisions, records and denials; unique over all files.")
    description: StrictStr = Field(default="", description="For people who read the policy.")
    mode: Literal["enforce", "shadow"] = Field(
        default="enforce", description="shadow: only record what the rule would have done."
    )
    on: NonEmptyList[Place] = Field(
        default=["descriptions", "schemas", "instructions", "results", "pages", "cards"],
        description="What to read: descriptions of tools, prompts and resources; schemas of tools; instructions of "
        "servers; results of calls, also of other agents; pages and answers of plain HTTP; cards of agents. Only where "
        "named: messages to other agents, and arguments of other calls.",
    )
    servers: Globs | None = Field(
        default=None, description="Globs over server names, and hosts of pages; all if absent."
    )
    tools: Globs | None = Field(default=None, description="Globs over tool names; all tools if absent.")
    agents: Globs | None = Field(default=None, description="Globs over agent names; all agents if absent.")
    signs: NonEmptyList[Kind] | None = Field(
        default=None, description="The kinds of signs of which one must be there; any if absent."
    )
    confidence: Literal["possible", "likely", "sure"] = Field(
        default="likely", description="How sure a finding must be."
    )
    action: Literal["flag", "strip", "withhold"] = Field(
        description="flag: pass it, with labels; strip: pass it without the text that was found; withhold: a result, "
        "tool, page or card is not passed at all."
    )
    labels: NonEmptyList[Label] = Field(
        default=["untrusted"], description="The labels that a finding puts on what the agent has then seen."
    )
    tests: list[IncomingTest] = Field(
        default_factory=empty_list, description="Tests that `interlock policy test` runs."
    )

    @model_validator(mode="after")
    def _tests_fit(self) -> IncomingRule:
        if self.action == "strip" and not {"messages", "arguments"}.isdisjoint(self.on):
            raise ValueError(
                "messages and arguments are not stripped: the other side would do half of it; use withhold"
            )
        for number, test in enumerate(self.tests, 1):
            if test.expect not in (self.action, "no_match"):
                raise ValueError(
                    f"test {number} expects {test.expect!r}; it tests this rule alone: "
                    f"expect {self.action!r} or 'no_match'"
                )
        return self

    def screening(self) -> Screening:
        """Return what the rule asks for."""
        signs = frozenset(self.signs) if self.signs else None
        return Screening(self.id, self.action, self.confidence, signs, tuple(self.labels), self.mode == "shadow")


class CompiledIncoming:
    """The rules on what comes in; false where there are none."""

    def __init__(self, rules: Iterable[IncomingRule] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.id))
        self._compiled = [(rule.screening(), frozenset(rule.on), tuple(_fits(rule))) for rule in self.rules]
        self._known: dict[tuple[str, str, str, str], tuple[Screening, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def asked(self, place: Place, server: str, agent: str, tool: str = "") -> tuple[Screening, ...]:
        """Return what the rules ask for at a place."""
        key = (place, server, agent, tool)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = tuple(self._asked(*key))
        return known

    def _asked(self, place: str, server: str, agent: str, tool: str) -> Iterator[Screening]:
        # A name counts as given and as a lax reader takes it: looking once too often harms nobody.
        names = [(name, fold(name).strip()) for name in (server, tool, agent)]
        for screening, places, tests in self._compiled:
            fits = all(test(plain) or test(lax) for test, (plain, lax) in zip(tests, names, strict=True))
            if place in places and fits:
                yield screening


def _fits(rule: IncomingRule) -> Iterator[Callable[[str], bool]]:
    yield compile_globs(rule.servers)
    yield compile_globs(rule.tools)
    yield compile_globs(rule.agents)


class FoundPassage(Protocol):
    """A passage that speaks to a model."""

    @property
    def kinds(self) -> Sequence[str]: ...

    def reaches(self, confidence: Literal["possible", "likely", "sure"], /) -> bool: ...


def meets(passage: FoundPassage, screening: Screening) -> bool:
    """Return whether a passage is what a rule asks for."""
    fits = screening.signs is None or not screening.signs.isdisjoint(passage.kinds)
    return fits and passage.reaches(screening.confidence)
