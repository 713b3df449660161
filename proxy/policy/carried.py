"""What a request may not carry: which of `carries` is looked for, where in the request, by which rule. Pure, no I/O.

A rule that denies adds names to look for in some parts of a request; one that allows takes them away again, for the
hosts that may get such a thing. The names of host checks are judged with the destination, before DNS is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from proxy.core.model import Redaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.policy.rules import EgressRule

PARTS: Final = ("url", "headers", "credentials", "body")
USUAL_PARTS: Final = ("url", "headers", "body")
HOST_CHECKS: Final = ("host_data", "many_names", "odd_address")
CONTENT_CHECKS: Final = (
    *("moved_credential", "foreign_credential", "basic_login", "metadata_url", "inner_url"),
    *("random_data", "encoded_text"),
)
CHECKS: Final = (*HOST_CHECKS, *CONTENT_CHECKS)


def host_checks(rule: EgressRule) -> frozenset[str]:
    return frozenset(rule.carries or ()) & frozenset(HOST_CHECKS)


def looks_inside(rule: EgressRule) -> bool:
    """Return whether a rule is about more than the host."""
    return bool(set(rule.carries or ()) - set(HOST_CHECKS))


def redactions_of(rules: Iterable[EgressRule]) -> tuple[Redaction, ...]:
    """Return what is looked for in a request that `rules` match: by rule, the names for each set of parts."""
    matched = [rule for rule in rules if rule.carries and looks_inside(rule)]
    lifts = [rule for rule in matched if rule.action == "allow"]
    found: list[Redaction] = []
    for rule in matched:
        if rule.action != "deny":
            continue
        by_names: dict[tuple[str, ...], list[str]] = {}
        for part in rule.in_ or USUAL_PARTS:
            if names := _left(rule, part, lifts):
                by_names.setdefault(names, []).append(part)
        action: Literal["report", "deny"] = "report" if rule.mode == "shadow" else "deny"
        found += (
            Redaction(rule.id, names, frozenset(("request", *parts)), action) for names, parts in by_names.items()
        )
    return tuple(found)


def _left(rule: EgressRule, part: str, lifts: Sequence[EgressRule]) -> tuple[str, ...]:
    allowed = {name for lift in lifts if part in (lift.in_ or PARTS) for name in lift.carries or ()}
    names = [name for name in rule.carries or () if name not in HOST_CHECKS]
    # A lift of a family takes its detectors along; one of a single detector of a family is kept as an exception.
    left = [name for name in names if name not in allowed and name.partition(".")[0] not in allowed]
    if all(name.startswith("!") for name in left):
        return ()
    return (*left, *(f"!{name}" for name in sorted(allowed) if name.partition(".")[0] in left and "." in name))
