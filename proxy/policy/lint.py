"""Find rules that probably do not do what their author means. Pure, no I/O."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.agents import ClaimMatch, entries, names
from proxy.policy.conditions import All, Condition, When, earlier_in
from proxy.policy.globs import compile_globs, is_glob
from proxy.policy.lint_patterns import dead_patterns
from proxy.policy.rules import covered_methods

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.policy.flow_rules import FlowRule, LabelRule
    from proxy.policy.incoming import IncomingRule
    from proxy.policy.observed import ObservedRule
    from proxy.policy.rules import EgressPolicy, EgressRule, Limit, Rule

_STRICTNESS: Final = {"allow": 0, "two_phase": 1, "external": 2, "deny": 3}


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark on a rule, with a kind to filter by."""

    rule: str
    kind: str
    message: str


def lint(rules: Sequence[Rule], default: str) -> tuple[Remark, ...]:
    """Return the remarks on `rules`, in their order."""
    remarks: list[Remark] = []
    essences = [rule.model_dump(exclude={"id", "description", "tests", "severity"}) for rule in rules]
    for position, rule in enumerate(rules):
        remarks.extend(_alone(rule, default))
        first = essences.index(essences[position])
        if first < position:
            remarks.append(Remark(rule.id, "duplicate", f"does the same as {rules[first].id}; remove one of the two"))
        remarks.extend(_shadowed(rule, rules))
    return tuple(remarks)


def lint_egress(section: EgressPolicy) -> tuple[Remark, ...]:
    """Return the remarks on the egress rules of a whole policy, in their order."""
    return tuple(remark for rule in section.rules for remark in _egress_alone(rule, section))


def lint_limits(limits: Sequence[Limit]) -> tuple[Remark, ...]:
    """Return the remarks on limits, in their order."""
    return tuple(remark for limit in limits for remark in _limit_alone(limit))


def _limit_alone(limit: Limit) -> Iterator[Remark]:
    if reason := _never(limit):
        yield Remark(limit.id, "never-matches", reason)
    if limit.shares == ("session",):
        said = "an agent begins a session whenever it likes; count per agent too, or it has as many budgets as it wants"
        yield Remark(limit.id, "evadable", said)
    if not limit.tests:
        yield Remark(limit.id, "untested", "has no tests; add a call that it must count and one that it must not")


def lint_observed(rules: Sequence[ObservedRule]) -> tuple[Remark, ...]:
    """Return the remarks on rules about what servers are observed to do, in their order."""
    untested = "has no tests; add an act that it must match and one that it must not"
    return tuple(Remark(rule.id, "untested", untested) for rule in rules if not rule.tests)


def lint_flows(
    labels: Sequence[LabelRule], flows: Sequence[FlowRule], rules: Sequence[Rule], incoming: Sequence[IncomingRule] = ()
) -> tuple[Remark, ...]:
    """Return the remarks on labels that nothing asks about, and on what asks about labels that nobody gives."""
    given = sorted(
        {word for rule in labels for word in rule.labels} | {word for rule in incoming for word in rule.labels}
    )
    wanted = {label for flow in flows for label in flow.labels}
    asked = [(rule.id, after) for rule in rules for after in earlier_in(rule.when)]
    wanted |= {label for _, after in asked for label in after.after.labels or ()}
    remarks = [
        Remark(rule.id, "no-effect", f"gives {', '.join(rule.labels)}, and no flow or rule asks about it")
        for rule in labels
        if wanted.isdisjoint(rule.labels)
    ]
    users = [*((flow.id, flow.labels) for flow in flows), *((name, after.after.labels or ()) for name, after in asked)]
    for name, words in users:
        remarks.extend(
            Remark(name, "unknown-label", _unknown(word, given)) for word in sorted(words) if word not in given
        )
    remarks.extend(
        Remark(flow.id, "untested", "has no tests; add a call that it must stop and one that it must not")
        for flow in flows
        if not flow.tests
    )
    return tuple(remarks)


def _unknown(word: str, given: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, given, n=1)
    said = f"; did you mean {close[0]!r}?" if close else "; a detector may still give it"
    return f"asks about the label {word!r}, which no label rule gives{said}"


def _egress_alone(rule: EgressRule, section: EgressPolicy) -> Iterator[Remark]:
    opens = rule.action == "allow" and rule.carries is None
    if opens and rule.mode == "enforce" and section.default == "allow":
        yield Remark(rule.id, "no-effect", "allows what the default already allows; an allow overrides no deny")
    alike = rule.action == "secrets" and all(r.secrets in (None, section.secrets) for r in section.rules)
    if alike and rule.mode == "enforce":
        yield Remark(rule.id, "no-effect", f"sets secrets: {rule.secrets}, as the egress section does for every host")
    if not rule.tests:
        yield Remark(rule.id, "untested", "has no tests; add a request that it must match and one that it must not")


def _alone(rule: Rule, default: str) -> Iterator[Remark]:
    if reason := _never(rule):
        yield Remark(rule.id, "never-matches", reason)
    yield from (Remark(rule.id, "dead-pattern", f"cannot match by {said}") for said in dead_patterns(rule))
    if rule.action == "allow" and default == "allow" and rule.mode == "enforce":
        yield Remark(rule.id, "no-effect", "allows what the default already allows; an allow overrides no deny")
    if not rule.tests:
        yield Remark(rule.id, "untested", "has no tests; add a call that it must match and one that it must not")


def _shadowed(rule: Rule, rules: Sequence[Rule]) -> Iterator[Remark]:
    if rule.action == "redact" or rule.mode == "shadow":
        return
    for other in rules:
        if other is rule or other.mode == "shadow" or other.action == "redact":
            continue
        stricter = _STRICTNESS[other.action] > _STRICTNESS[rule.action]
        # What a service allows still has to be proposed.
        stricter = stricter and (other.action, rule.action) != ("external", "two_phase")
        # Two-phase rules add up, so a narrower one may still make the terms stricter.
        same = other.action == rule.action and rule.action != "two_phase"
        wider = same and other.when is None and rule.when is not None
        if (stricter or wider) and _covers(other, rule):
            yield Remark(rule.id, "shadowed", f"never decides: {other.id} ({other.action}) matches whatever it matches")
            return


def _covers(wide: Rule, narrow: Rule) -> bool:
    return (
        _globs_cover(wide.servers, narrow.servers)
        and _globs_cover(wide.tools, narrow.tools)
        and _agents_cover(wide, narrow)
        and _globs_cover(covered_methods(wide), covered_methods(narrow))
        and (wide.annotations is None or wide.annotations == narrow.annotations)
        and (wide.when is None or wide.when == narrow.when)
    )


def _agents_cover(wide: Rule, narrow: Rule) -> bool:
    claims = [one for one in entries(narrow.agents) if isinstance(one, ClaimMatch)]
    if wide.agents is None:
        return True
    # Of claims only the same ones are compared: who has two of them is known to the issuer alone.
    if not all(claim in entries(wide.agents) for claim in claims):
        return False
    return _globs_cover(names(wide.agents), None if narrow.agents is None else names(narrow.agents))


def _globs_cover(wide: Sequence[str] | None, narrow: Sequence[str] | None) -> bool:
    if wide is None or "*" in wide:
        return True
    if narrow is None:
        return False
    fits = compile_globs(wide)
    return all(pattern in wide or (not is_glob(pattern) and fits(pattern)) for pattern in narrow)


def _never(rule: Rule | Limit) -> str | None:
    # Calls of other methods have no tool name, so only a glob such as * fits them.
    no_tool_fits = rule.tools is not None and not compile_globs(rule.tools)("")
    if rule.methods and no_tool_fits and not compile_globs(rule.methods)("tools/call"):
        return "names tools, but none of its methods calls one; remove tools: or add tools/call"
    if rule.annotations and rule.annotations.read_only and rule.annotations.destructive:
        return "no tool is read-only and destructive; remove one of the hints"
    return _contradiction(rule.when) if rule.when is not None else None


def _contradiction(when: When) -> str | None:
    """Return why conditions on one `arg` cannot hold together, or None."""
    conditions = [when] if isinstance(when, Condition) else when.all if isinstance(when, All) else []
    by_arg: dict[str, list[tuple[str, Any]]] = {}
    for part in conditions:
        if isinstance(part, Condition) and "*" not in part.arg:
            by_arg.setdefault(part.arg, []).extend(part.operators().items())
    for arg, operators in by_arg.items():
        if reason := _clash(operators):
            return f"{arg}: {reason}"
    return None


def _clash(operators: Sequence[tuple[str, Any]]) -> str | None:
    equals = [value for name, value in operators if name == "equals"]
    if any(value != equals[0] for value in equals[1:]):
        return "cannot equal two values at once"
    refused = [value for name, value in operators if name == "not_equals"]
    if any(value in refused for value in equals):
        return "cannot equal and not equal the same value"
    exists = {value for name, value in operators if name == "exists"}
    if exists == {True, False} or (exists == {False} and len(operators) > 1 and "not_equals" not in dict(operators)):
        return "cannot be absent and have a value"
    low = max((value for name, value in operators if name in ("gt", "gte")), default=None)
    high = min((value for name, value in operators if name in ("lt", "lte")), default=None)
    if low is not None and high is not None and low > high:
        return f"no number is above {low} and below {high}"
    return None
