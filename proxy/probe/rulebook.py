"""Loads the rules by which a probe judges, from rules.yaml beside this file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from ruamel.yaml import YAML

from proxy.probe.observation_facts import meant_program
from proxy.trace.capability import Capability  # noqa: TC001  pydantic reads it when it runs

if TYPE_CHECKING:
    from proxy.probe.observation_facts import ProbeObservation

FILE = Path(__file__).with_name("rules.yaml")
FACTS = frozenset(
    {
        *("startup", "read_only", "network", "executes", "fetching", "foreign_process", "canary_sent", "remote"),
        *("hosts_named", "host_named", "data_in_name", "launch", "own_program", "program_named", "named"),
        *("sought", "own_socket", "loopback", "hinted", "by_browser", "output", "hardware"),
        *("named_file", "granted", "granted_document", "temporary", "canary", "own_process", "working_folder"),
        *("connects", "above_code", "own_folder"),
    }
)


def _known_facts(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = sorted(set(names) - FACTS)
    if unknown:
        raise ValueError(f"there is no fact {unknown[0]!r}; there are {', '.join(sorted(FACTS))}")
    return names


type Facts = Annotated[tuple[str, ...], AfterValidator(_known_facts)]
type Severity = Literal["info", "high"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuleException(_Strict):
    """An exception to a rule: applies where every given field fits."""

    paths: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # all that the program is given
    actions: tuple[str, ...] = ()
    facts: Facts = ()

    def fits(self, record: ProbeObservation, path: str, facts: frozenset[str]) -> bool:
        started, words = meant_program(record.observation) if record.observation.argv else (record.program, ())
        return (
            (not self.arguments or " ".join(words) in self.arguments)
            and (not self.paths or matches(path, self.paths))
            and (not self.programs or started in self.programs)
            and (not self.actions or record.observation.action in self.actions)
            and facts.issuperset(self.facts)
        )


class ProbeRule(_Strict):
    """One kind of finding; rules.yaml says what the fields mean."""

    id: Annotated[str, Field(pattern=r"^[a-z]+(-[a-z]+)*$")]
    severity: Severity
    description: str
    capability: tuple[Capability, ...] = ()
    actions: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    all: Facts = ()
    none: Facts = ()
    exceptions: tuple[RuleException, ...] = ()
    supersedes: tuple[str, ...] = ()

    def speaks_of(self, record: ProbeObservation, path: str, facts: frozenset[str]) -> bool:
        """Return whether the rule matches an observation; `path` has the home written as a tilde."""
        return (
            record.observation.capability in self.capability
            and (not self.actions or record.observation.action in self.actions)
            and facts.issuperset(self.all)
            and facts.isdisjoint(self.none)
            and (not self.paths or matches(path, self.paths))
            and not any(excuse.fits(record, path, facts) for excuse in self.exceptions)
        )


class Rulebook(_Strict):
    version: Literal[1]
    rules: tuple[ProbeRule, ...]

    @model_validator(mode="after")
    def _check_names(self) -> Rulebook:
        names = [rule.id for rule in self.rules]
        for rule in self.rules:
            unknown = set(rule.supersedes) - set(names)
            if unknown or names.count(rule.id) > 1:
                raise ValueError(f"rule {rule.id!r} is there twice, or supersedes one that is not there: {unknown}")
        return self

    def get(self, name: str) -> ProbeRule:
        return {rule.id: rule for rule in self.rules}[name]


@cache
def rulebook() -> Rulebook:
    return Rulebook.model_validate(YAML(typ="safe").load(FILE.read_text()))


@cache
def _sensitive() -> re.Pattern[str]:
    return re.compile("|".join(_expression(glob).pattern for glob in rulebook().get("secret-sought").paths), re.DOTALL)


def is_sensitive(path: str) -> bool:
    """Return whether a path, with the home written as a tilde, is one that holds credentials."""
    return _sensitive().fullmatch(path) is not None


def matches(path: str, globs: tuple[str, ...]) -> bool:
    """Return whether a path matches one of `globs`; rules.yaml explains those."""
    return any(_expression(glob).fullmatch(path) for glob in globs)


@cache
def _expression(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/?|\*)", glob)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts), re.DOTALL)
