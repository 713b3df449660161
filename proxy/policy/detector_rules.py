"""A policy's own detectors and suppressions: their models, and checks of them. Pure, no I/O."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, StrictStr, model_validator

from proxy.core import model
from proxy.core.defaults import empty_list
from proxy.policy.carried import CHECKS
from proxy.policy.conditions import NonEmptyStr, Regex, Strict
from proxy.policy.globs import compile_globs
from proxy.policy.regex import compile_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from proxy.core.interfaces import KnownDetectors
    from proxy.core.model import Call
    from proxy.policy.load import PolicySource

type Keyword = Annotated[StrictStr, Field(min_length=1, max_length=64)]
type Glob = Annotated[StrictStr, Field(min_length=1, max_length=200)]
# A file, the steps to a value in it, and what is wrong there.
type Complaint = tuple[PolicySource, tuple[str | int, ...], str]

_named = compile_search(r"^custom\.[a-z0-9]+(-[a-z0-9]+)*$")


def _check_id(text: str) -> str:
    if not _named(text):
        raise ValueError("name yours like custom.badge-number; secrets.* and pii.* are built in")
    return text


class Detector(Strict):
    """One kind of text to look for, besides the built-in ones."""

    id: Annotated[StrictStr, Field(max_length=64), AfterValidator(_check_id)] = Field(
        description="custom.NAME, the name for redact rules."
    )
    description: NonEmptyStr = Field(description="What it finds, in a few words.")
    regex: Annotated[Regex, Field(max_length=2000)] = Field(description="RE2, matched on bytes.")
    keywords: list[Keyword] = Field(
        default_factory=empty_list,
        description="One of these must be in the match or within 128 bytes of it, in any case.",
    )
    edges: Literal["free", "word", "left", "none"] = Field(
        "free",
        description=r"free: found inside other text and across fields; word: \b on both sides; left: \b before it; "
        "none: found inside other text, but not across fields.",
    )
    hint: Regex | None = Field(default=None, description="A cheaper regex that every match contains.")
    group: Annotated[StrictInt, Field(ge=0)] = Field(default=0, description="The capture group that holds the secret.")
    entropy: Annotated[StrictFloat | StrictInt, Field(ge=0, le=8)] = Field(
        default=0.0, description="The minimum Shannon entropy of the secret, in bits per byte."
    )
    allow: list[Regex] = Field(
        default_factory=empty_list, description="A text that one of these matches whole is no finding."
    )
    stopwords: list[Keyword] = Field(
        default_factory=empty_list, description="A text with one of these in it is no finding."
    )
    validator: NonEmptyStr | None = Field(default=None, description="A built-in check: card, iban, has_digit, …")

    def raw(self) -> dict[str, Any]:
        """Return the fields given, as the redactor takes them."""
        return {**self.model_dump(exclude_unset=True), "entropy": float(self.entropy)}


class Suppression(Strict):
    """A finding to ignore. Every field but the reason narrows it."""

    reason: Annotated[StrictStr, Field(min_length=3)] = Field(description="Why it is no secret; this is recorded.")
    rule: Glob | None = Field(default=None, description="Glob over the ids of redact rules.")
    server: Glob | None = Field(default=None, description="Glob over servers.")
    tool: Glob | None = Field(default=None, description="Glob over tools.")
    detector: Glob | None = Field(default=None, description="Glob over detectors.")
    path: Glob | None = Field(default=None, description="Where it was found, as the audit log has it: arguments.text")
    fingerprint: Annotated[StrictStr, Field(pattern="^[0-9a-f]{16}$")] | None = Field(
        default=None, description="The sixteen hex digits recorded with the finding."
    )

    @model_validator(mode="after")
    def _is_narrow(self) -> Suppression:
        if self.fingerprint is None and (self.detector is None or not (self.path or "").strip("*")):
            raise ValueError("too wide: give a fingerprint, or a detector with a path that is more than '*'")
        return self


class CompiledSuppression:
    def __init__(self, written: Suppression) -> None:
        self.value = model.Suppression(written.reason, written.detector, written.path, written.fingerprint)
        self._fits_rule, self._fits_server = _fits(written.rule), _fits(written.server)
        self._fits_tool, self._needs_tool = _fits(written.tool), written.tool is not None

    def applies(self, rule: str, call: Call) -> bool:
        """Return whether it covers findings of `rule` in `call`."""
        # Names count as given: a suppression weakens a rule, so no lax reading of a name may extend it.
        return (
            self._fits_rule(rule)
            and self._fits_server(call.server)
            and (self._fits_tool(call.tool) if call.tool is not None else not self._needs_tool)
        )


def _fits(glob: str | None) -> Callable[[str], bool]:
    return compile_globs(None if glob is None else [glob])


def detector_problems(sources: Sequence[PolicySource], book: KnownDetectors) -> Iterator[Complaint]:
    """Return which detectors are wrong or have the same id, and which names in redact rules are unknown."""
    declared: dict[str, tuple[PolicySource, int]] = {}
    for source in sources:
        for index, detector in enumerate(source.content.detectors):
            for objection in book.objections(detector.raw()):
                yield source, ("detectors", index, *objection.field), objection.message
            if taken := declared.get(detector.id):
                first, position = taken
                at = f"{first.path}:{first.at('detectors', position, 'id')[0]}"
                message = f"id {detector.id!r} is already used at {at}; give each detector its own id"
                yield source, ("detectors", index, "id"), message
            declared.setdefault(detector.id, (source, index))
    for source in sources:
        yield from _unknown_names(source, {*declared}, book)


def _unknown_names(source: PolicySource, declared: set[str], book: KnownDetectors) -> Iterator[Complaint]:
    for index, rule in enumerate(source.content.rules):
        for position, name in enumerate(rule.detectors if rule.action == "redact" else ()):
            if name not in declared and not book.knows(name):
                message = f"there is no detector {name!r}{_near(name, (*declared, *book.names()))}"
                yield source, ("rules", index, "detectors", position), message
    for index, egress in enumerate(source.content.egress.rules if source.content.egress else ()):
        for position, written in enumerate(egress.carries or ()):
            name = written.removeprefix("!")
            if name not in CHECKS and name not in declared and not book.knows(name):
                message = f"there is no detector or check {name!r}{_near(name, (*CHECKS, *declared, *book.names()))}"
                yield source, ("egress", "rules", index, "carries", position), message


def _near(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or [n for n in known if n.endswith(f".{name}")]
    if close:
        return f"; did you mean {close[0]!r}?"
    return "; write a family (secrets, pii, custom), an id such as pii.card, or define it under detectors:"


@dataclass(frozen=True, slots=True)
class SectionRemark:
    """One remark on a detector or a suppression, with a kind to filter by."""

    source: PolicySource
    steps: tuple[str | int, ...]
    kind: str
    message: str


def lint_detectors(sources: Sequence[PolicySource], book: KnownDetectors) -> Iterator[SectionRemark]:
    """Return which detectors and suppressions probably do not do what their author means."""
    rules = [rule for source in sources for rule in source.content.rules if rule.action == "redact"]
    named = {name for rule in rules for name in rule.detectors}
    declared = {detector.id for source in sources for detector in source.content.detectors}
    for source in sources:
        for index, detector in enumerate(source.content.detectors):
            if not named & {detector.id, "custom"}:
                message = f"{detector.id} is in no redact rule: its findings are masked in records only"
                yield SectionRemark(source, ("detectors", index), "unused-detector", message)
        for index, entry in enumerate(source.content.suppressions):
            steps = ("suppressions", index)
            if not _fits_any(entry.rule, (rule.id for rule in rules)):
                message = f"rule {entry.rule!r} matches no redact rule, so nothing is suppressed"
                yield SectionRemark(source, (*steps, "rule"), "unknown-rule", message)
            if not _fits_any(entry.detector, {*declared, *book.names()}):
                message = f"detector {entry.detector!r} matches no detector, so nothing is suppressed"
                yield SectionRemark(source, (*steps, "detector"), "unknown-detector", message)


def _fits_any(glob: str | None, names: Iterable[str]) -> bool:
    return glob is None or any(map(_fits(glob), names))
