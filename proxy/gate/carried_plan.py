"""What to look for in a request by the rules that match it, and which rule a finding breaks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.policy.carried import CONTENT_CHECKS, PARTS, USUAL_PARTS
from proxy.policy.issuers import issuer_of, owner_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Finding, Redaction

_PART_OF: Final = {"path": "url", "query": "url"}
_LIMITS: Final = "limits."


@dataclass(frozen=True, slots=True)
class CarriedPlan:
    """All that some rules look for, for one pass over a request."""

    rules: tuple[Redaction, ...]
    detectors: tuple[str, ...]
    checks: frozenset[str]
    with_credentials: bool

    def broken(self, findings: Sequence[Finding], host: str) -> tuple[Redaction, tuple[Finding, ...]] | None:
        """Return the strictest rule that findings break, and which of them do; None where no rule minds."""
        hits = [(rule, tuple(f for f in findings if breaks(rule, f, host))) for rule in self.rules]
        hits = [(rule, found) for rule, found in hits if found]
        return min(hits, key=lambda hit: hit[0].action != "deny") if hits else None

    def strictest(self) -> Redaction:
        """Return the rule that speaks where a request cannot be read."""
        return min(self.rules, key=lambda rule: rule.action != "deny")


def plan_for(rules: tuple[Redaction, ...]) -> CarriedPlan:
    names = [name for rule in rules for name in rule.detectors if not name.startswith("!")]
    checks = frozenset(names) & frozenset(CONTENT_CHECKS)
    detectors = dict.fromkeys(name for name in names if name not in checks)
    if "foreign_credential" in checks:
        detectors |= {"secrets": None, "shape": None}
    inside = bool(checks & {"foreign_credential", "moved_credential", "basic_login"})
    return CarriedPlan(rules, tuple(detectors), checks, inside or any("credentials" in rule.on for rule in rules))


def parts_of(rule: Redaction) -> frozenset[str]:
    return (rule.on - {"request"}) or frozenset(USUAL_PARTS)


def breaks(rule: Redaction, finding: Finding, host: str) -> bool:
    """Return whether a finding is what a rule looks for, where it looks for it."""
    top = finding.path.partition(".")[0].partition("[")[0]
    part = _PART_OF.get(top, top)
    if part not in PARTS:
        return kind_of(finding) in rule.detectors  # nobody knows where it is, so it may be where the rule looks
    named, kind = finding.detector, kind_of(finding)
    if kind == "request":
        name = named.removeprefix("request.").replace("-", "_")
        return name in rule.detectors and (part in parts_of(rule) or part == "credentials")
    if part in parts_of(rule) and "foreign_credential" in rule.detectors:
        issuer = issuer_of(named)
        if issuer is not None and issuer != owner_of(host):
            return True
    # A service may be sent its own credentials, in whatever part of a request it wants them.
    if part not in parts_of(rule) or f"!{named}" in rule.detectors or _is_own(named, host):
        return False
    return named in rule.detectors or kind in rule.detectors or named.startswith(_LIMITS)


def kind_of(finding: Finding) -> str:
    return finding.detector.partition(".")[0]


def _is_own(detector: str, host: str) -> bool:
    issuer = issuer_of(detector)
    return issuer is not None and issuer == owner_of(host)
