"""Suppressions: findings that somebody has looked at and that a policy lets be.

Pure. A suppression is narrow: it names a fingerprint, or a detector at a path, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from proxy.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxy.model import Finding

type _Glob = Annotated[str, Field(min_length=1, max_length=200)]


class Suppression(BaseModel):
    """One finding to let be. What is absent applies everywhere; `*` in a glob stands for anything."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reason: Annotated[str, Field(min_length=3)]
    rule: _Glob | None = None
    tool: _Glob | None = None
    detector: _Glob | None = None
    path: _Glob | None = None
    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None = None

    @model_validator(mode="after")
    def _is_narrow(self) -> Self:
        if self.fingerprint is None and (self.detector is None or not (self.path or "").strip("*")):
            raise ValueError("give a fingerprint, or a detector with a path that is more than '*'")
        return self

    def covers(self, finding: Finding) -> bool:
        """Tell whether `finding` is the one meant, rule and tool aside."""
        return (
            self.fingerprint in {None, finding.fingerprint}
            and (self.detector is None or fnmatchcase(finding.detector, self.detector))
            and (self.path is None or fnmatchcase(finding.path, _literal_brackets(self.path)))
        )


def _literal_brackets(glob: str) -> str:
    """Make `files[0].name` and `files[*].name` mean what they say."""
    return glob.replace("[", "[[]")


@dataclass(frozen=True, slots=True)
class Suppressions:
    """A policy's suppressions."""

    entries: tuple[Suppression, ...] = ()

    @classmethod
    def parse(cls, raw: Iterable[Mapping[str, Any]]) -> Suppressions:
        """Check suppressions as written.

        Raises PolicyError that says which one is wrong and why.
        """
        entries = []
        for number, item in enumerate(raw, 1):
            try:
                entries.append(Suppression.model_validate(dict(item)))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"]) or "suppression"
                raise PolicyError(f"suppression {number}: {where}: {first['msg']}") from error
        return cls(tuple(entries))

    def applying(self, *, rule: str | None, tool: str | None) -> Suppressions:
        """Give those that speak of this rule and this tool."""
        return Suppressions(
            tuple(entry for entry in self.entries if _applies(entry.rule, rule) and _applies(entry.tool, tool))
        )

    def cover(self, finding: Finding) -> bool:
        """Tell whether any of them means `finding`."""
        return any(entry.covers(finding) for entry in self.entries)


def _applies(glob: str | None, name: str | None) -> bool:
    return glob is None or (name is not None and fnmatchcase(name, glob))
