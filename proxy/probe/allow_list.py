"""The allow list of a probe: a file that names findings which somebody has looked at and accepts, with the reason.

    allow:
      - rule: undeclared-exec
        tools: ["read_*"]           # absent: every tool, and the server itself
        targets: [/usr/bin/ffprobe] # absent: whatever was done it to
        reason: It reads the length of a video.
        until: 2027-01-31           # absent: for ever

An entry excuses a finding where it fits all that the finding names; a file that cannot be read excuses nothing.
"""

from __future__ import annotations

import datetime as dt  # noqa: TC003  pydantic reads it when it runs
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.errors import ConfigError
from proxy.probe.rulebook import rulebook

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.probe.findings import ProbeFinding
    from proxy.probe.report import ProbeReport

# That the probe did not see everything, or was interfered with, nobody can look at and accept.
NEVER = frozenset({"trace-incomplete", "tracer-tampering"})


class AllowEntry(BaseModel):
    """What is accepted. All fields must fit."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rule: str
    tools: list[str] | None = None
    targets: list[str] | None = None
    reason: Annotated[str, Field(min_length=1)]
    until: dt.date | None = None

    def excuses(self, finding: ProbeFinding, tool: str | None, today: dt.date) -> bool:
        """Return whether the entry covers what a finding says of one of its tools."""
        in_tools = self.tools is None or any(fnmatchcase(tool or "", glob) for glob in self.tools)
        seen = finding.targets
        # Every target must be accepted: a new host beside an accepted one is news.
        in_targets = self.targets is None or (
            bool(seen) and all(any(fnmatchcase(each, glob) for glob in self.targets) for each in seen)
        )
        in_time = self.until is None or today <= self.until
        return self.rule == finding.rule and in_tools and in_targets and in_time


class AllowList(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    allow: list[AllowEntry]


def load_allow_list(file: Path) -> tuple[AllowEntry, ...]:
    """Return the entries of a file. Raises ConfigError where it cannot be read, or names what there is not."""
    try:
        read = AllowList.model_validate(YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{file}: {where}: {first['msg']}; an entry has a rule and a reason") from error
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    names = {rule.id for rule in rulebook().rules}
    for entry in read.allow:
        if entry.rule not in names or entry.rule in NEVER:
            why = "cannot be accepted" if entry.rule in NEVER else f"is not one of {', '.join(sorted(names - NEVER))}"
            raise ConfigError(f"{file}: the rule {entry.rule!r} {why}")
    return tuple(read.allow)


def apply_allow_list(report: ProbeReport, entries: Sequence[AllowEntry], today: dt.date) -> ProbeReport:
    """Return the report with the findings that entries excuse moved to `allowed`."""
    left: list[ProbeFinding] = []
    allowed: list[tuple[ProbeFinding, str]] = []
    for finding in report.findings:
        reasons = {tool: _reason(finding, tool, entries, today) for tool in finding.tools}
        kept = tuple(tool for tool, reason in reasons.items() if reason is None)
        gone = tuple(tool for tool, reason in reasons.items() if reason is not None)
        if kept:
            left.append(replace(finding, tool=kept[0], others=kept[1:]))
        if gone:
            allowed.append((replace(finding, tool=gone[0], others=gone[1:]), reasons[gone[0]] or ""))
    return replace(report, findings=tuple(left), allowed=tuple(allowed))


def _reason(finding: ProbeFinding, tool: str | None, entries: Sequence[AllowEntry], today: dt.date) -> str | None:
    return next((entry.reason for entry in entries if entry.excuses(finding, tool, today)), None)
