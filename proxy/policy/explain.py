"""Why a call is decided as it is: every rule looked at, every view it saw. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.arg_path import EvalContext, parse_arg
from proxy.policy.command_operator import CommandView
from proxy.policy.conditions import All, Any_, Condition, Not
from proxy.policy.decide import name_variants
from proxy.policy.hosts import UrlViews
from proxy.policy.operators import OPERATORS, compile_when
from proxy.policy.path_operator import PathSet
from proxy.policy.views import YES, NumberView, ScalarView, TextView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Call, Decision
    from proxy.policy.compiled_rule import CompiledRule, Hit
    from proxy.policy.conditions import When
    from proxy.policy.decide import CompiledPolicy

_FAMILIES: Final = {
    "equals": "scalar",
    "not_equals": "scalar",
    "in": "scalar",
    "starts_with": "text",
    "ends_with": "text",
    "contains": "contents",
    "matches": "text",
    "gt": "number",
    "gte": "number",
    "lt": "number",
    "lte": "number",
    "length": "length",
    "path_under": "paths",
    "host_in": "url",
    "url_scheme": "url",
    "ip_class": "url",
    "cidr": "url",
    "command": "command",
}
_ANSWERS: Final = {0: "no", 1: "some views", 3: "yes"}


@dataclass(frozen=True, slots=True)
class ConditionTrace:
    """One part of a condition: what it asks, the views it saw, the answer, and its own parts."""

    asks: str
    answer: str
    views: tuple[str, ...] = ()
    trouble: str = ""
    parts: tuple[ConditionTrace, ...] = ()

    def data(self) -> dict[str, Any]:
        """Return the step as JSON."""
        return {
            "asks": self.asks,
            "answer": self.answer,
            "views": list(self.views),
            "trouble": self.trouble,
            "parts": [part.data() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """What one rule made of a call."""

    rule: str
    action: str
    mode: str
    matched: bool
    why: str
    condition: ConditionTrace | None = None

    def data(self) -> dict[str, Any]:
        """Return the trace as JSON."""
        return {
            "rule": self.rule,
            "action": self.action,
            "mode": self.mode,
            "matched": self.matched,
            "why": self.why,
            "condition": self.condition.data() if self.condition else None,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and how it came about."""

    decision: Decision
    because: str
    looked_at: tuple[RuleTrace, ...]
    passed_over: tuple[tuple[str, str], ...]

    def data(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        return {
            "outcome": str(self.decision.outcome),
            "reason": self.decision.reason,
            "rule": self.decision.rule,
            "message": self.decision.message,
            "because": self.because,
            "shadow": list(self.decision.shadow),
            "redactions": [r.rule for r in self.decision.redactions],
            "policy_version": self.decision.policy_version,
            "looked_at": [trace.data() for trace in self.looked_at],
            "passed_over": [{"rule": rule, "why": why} for rule, why in self.passed_over],
        }


def explain(policy: CompiledPolicy, call: Call) -> Explanation:
    """Decide `call` and tell how."""
    context = EvalContext(call.arguments or {})
    looked_at = policy.rules_for(call)
    traces = tuple(_trace(rule, rule.evaluate(context), call) for rule in looked_at)
    decision = policy.decide(call)
    passed_over = tuple((rule.id, _why_not(rule, call)) for rule in policy.compiled if rule not in looked_at)
    return Explanation(decision, _because(policy, decision, traces), traces, passed_over)


def _trace(rule: CompiledRule, hit: Hit | None, call: Call) -> RuleTrace:
    condition = _step(rule.rule.when, call) if rule.rule.when is not None else None
    matched = hit is not None and (hit.reason is None or not rule.allows)
    if hit is not None and hit.reason is not None:
        why = f"{hit.reason}: {hit.detail}"
    elif condition is None:
        why = "has no condition"
    elif rule.allows and condition.answer == _ANSWERS[1]:
        why = "an allow needs every view to match, and only some do"
    else:
        why = "its condition holds" if matched else "its condition does not hold"
    return RuleTrace(rule.id, rule.rule.action, rule.rule.mode, matched, why, condition)


def _step(when: When, call: Call) -> ConditionTrace:
    match when:
        case All(all=parts):
            return _compound("all", when, parts, call)
        case Any_(any=parts):
            return _compound("any", when, parts, call)
        case Not(not_=part):
            return _compound("not", when, [part], call)
        case Condition():
            return _leaf(when, call)


def _compound(name: str, when: When, parts: Sequence[When], call: Call) -> ConditionTrace:
    answer, trouble = _ask(when, call)
    return ConditionTrace(name, answer, (), trouble, tuple(_step(part, call) for part in parts))


def _ask(when: When, call: Call) -> tuple[str, str]:
    context = EvalContext(call.arguments or {})
    try:
        bits = compile_when(when)(context)
    except Exception as error:  # noqa: BLE001 - an explanation tells of a broken rule too
        return "cannot tell", f"{type(error).__name__}: {error}"
    trouble = context.take_trouble()
    if trouble is not None and bits != YES:
        return "cannot tell", f"{trouble.reason}: {trouble.detail}"
    return _ANSWERS[bits], ""


def _leaf(condition: Condition, call: Call) -> ConditionTrace:
    answer, trouble = _ask(condition, call)
    context = EvalContext(call.arguments or {})
    arg = parse_arg(condition.arg)
    views: dict[str, None] = {}
    for name, operand in condition.operators().items():
        try:
            OPERATORS[name](arg, operand)(context)
        except Exception:  # noqa: BLE001, S112 - told of by `trouble`
            continue
        found = context.memo.get(f"{_FAMILIES.get(name)}:{arg.text}")
        if isinstance(found, PathSet):
            views |= dict.fromkeys((*found.exact, *found.folded, *found.relative))
        elif found is not None:
            views |= dict.fromkeys(text for view in (*found.items, *found.extra) for text in show_view(view))
    if not views:
        selection = arg.select(context)
        views |= dict.fromkeys(repr(value) for value in (*selection.exact, *selection.loose))
    asks = ", ".join(f"{name} {operand!r}" for name, operand in condition.operators().items())
    return ConditionTrace(f"{condition.arg} {asks}", answer, tuple(views), trouble)


def show_view(view: Any) -> tuple[str, ...]:
    """Return a view as a person reads it."""
    match view:
        case TextView():
            return view.readings
        case ScalarView():
            return (repr(view.value), *sorted(view.names))
        case NumberView():
            return (repr(view.value),)
        case UrlViews():
            addresses = tuple(str(a) for host in view.hosts for a in host.addresses)
            return (*(host.name for host in view.hosts), *addresses, *(f"{s}:" for s in view.schemes))
        case CommandView():
            return tuple(
                " ".join((program.name, *(word.text for word in program.args))) for program in (*view.run, *view.maybe)
            )
        case _:
            return (repr(view),)


def _why_not(rule: CompiledRule, call: Call) -> str:
    names = name_variants(call)
    if not rule.fits_method(call.method):
        return f"methods: speaks of {', '.join(rule.rule.methods or ['tools/call'])}"
    if not any(rule.fits_server(server) for server, _, _ in names):
        return "servers: no glob fits"
    if not any(rule.fits_tool(tool) for _, tool, _ in names):
        return "tools: no glob fits"
    if not any(rule.fits_agent(agent) for _, _, agent in names):
        return "agents: no glob fits"
    if not rule.fits_hints(call.hints):
        return "annotations: the server says something else of the tool"
    return "an allow needs every spelling of the names to fit"


def _because(policy: CompiledPolicy, decision: Decision, traces: Sequence[RuleTrace]) -> str:
    if decision.rule is None:
        return f"no enforcing rule matched, and the default is {policy.default}"
    rivals = [t.rule for t in traces if t.matched and t.mode == "enforce" and t.rule != decision.rule]
    if not rivals:
        return f"{decision.rule} is the only enforcing rule that matched"
    return f"{decision.rule} is the strictest of the rules that matched; so did {', '.join(rivals)}"
