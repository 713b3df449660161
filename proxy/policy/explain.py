"""Explain a decision: every rule that was evaluated, and every view that it saw. Pure, no I/O."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proxy.core.model import Outcome
from proxy.policy.agents import describe as describe_agents
from proxy.policy.arg_path import parse_arg
from proxy.policy.command_operator import CommandView
from proxy.policy.conditions import After, All, Any_, Condition, Not, When
from proxy.policy.decide import CompiledPolicy, name_variants
from proxy.policy.eval_context import EvalContext
from proxy.policy.hosts import UrlViews
from proxy.policy.limit_values import show_amount
from proxy.policy.observed import values_of
from proxy.policy.operators import OPERATORS, compile_when
from proxy.policy.past import Past
from proxy.policy.path_operator import PathSet
from proxy.policy.paths import PathViews
from proxy.policy.rules import ExternalRule, describe_coverage
from proxy.policy.views import YES, NumberView, ScalarView, TextView, Views

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.limits import Charge
    from proxy.core.model import Call, Decision
    from proxy.policy.compiled_rule import CompiledRule, Hit
    from proxy.policy.observed import CompiledActRule, TestAct

# Each condition is explained in a context of its own, so that the views in it are this condition's.
type NewContext = Callable[[], EvalContext]

_SENT: Final = {"masked": "masked arguments", "raw": "the arguments as they are", "none": "no arguments"}
_ANSWERS: Final = {0: "no", 1: "some views", 3: "yes"}


@dataclass(frozen=True, slots=True)
class ConditionTrace:
    """One part of a condition: what it tests, the views it saw, the answer, and its own parts."""

    asks: str
    answer: str
    views: tuple[str, ...] = ()
    trouble: str = ""
    parts: tuple[ConditionTrace, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """What one rule made of a call."""

    rule: str
    action: str
    mode: str
    matched: bool
    why: str
    condition: ConditionTrace | None = None
    covers: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call uses up of one limit."""

    limit: str
    action: str
    mode: str
    budget: str
    says: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, the rules evaluated for it, those that do not apply, and what the call uses up of limits."""

    decision: Decision
    because: str
    looked_at: tuple[RuleTrace, ...]
    passed_over: tuple[tuple[str, str], ...]
    costs: tuple[Cost, ...] = ()

    def data(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        return {
            "outcome": str(self.decision.outcome),
            **{name: getattr(self.decision, name) for name in ("reason", "rule", "message")},
            "because": self.because,
            "shadow": list(self.decision.shadow),
            "redactions": [r.rule for r in self.decision.redactions],
            "policy_version": self.decision.policy_version,
            "looked_at": [asdict(trace) for trace in self.looked_at],
            "passed_over": [{"rule": rule, "why": why} for rule, why in self.passed_over],
            "limits": [asdict(cost) for cost in self.costs],
        }


def explain(policy: CompiledPolicy, call: Call) -> Explanation:
    """Decide `call` and return how each rule contributed. Where nothing is known of what came before, nothing did."""
    call = replace(call, history=call.history or Past())
    context = policy.context_of(call)
    looked_at = policy.rules_for(call)
    traces = tuple(_trace(rule, rule.evaluate(context), partial(policy.context_of, call)) for rule in looked_at)
    decision = policy.decide(call)
    passed_over = tuple((rule.id, _why_not(rule, call)) for rule in policy.compiled if rule not in looked_at)
    costs = tuple(_cost(policy, charge) for charge in decision.charges)
    return Explanation(decision, _because(policy, decision, traces), traces, passed_over, costs)


def explain_act(policy: CompiledPolicy, seen: TestAct) -> tuple[RuleTrace, ...]:
    """Return what each rule on observed behaviour makes of an act."""
    return tuple(_trace_act(rule, seen) for rule in policy.observed.compiled)


def _trace_act(compiled: CompiledActRule, seen: TestAct) -> RuleTrace:
    rule, values = compiled.rule, values_of(seen.as_act())
    condition = _step(rule.when, lambda: EvalContext(values, "", compiled.homes)) if rule.when is not None else None
    matched = compiled.meets(seen)
    if matched:
        why = "has no condition" if condition is None else "its condition holds"
    else:
        holds = compiled.matches(seen.as_act())
        why = (
            "is about other calls, servers or times" if holds else "is about other acts, or its condition does not hold"
        )
    return RuleTrace(rule.id, rule.action, rule.mode, matched, why, condition, ", ".join(rule.acts))


def _cost(policy: CompiledPolicy, charge: Charge) -> Cost:
    limit = policy.limits.by_id[charge.limit].limit
    show = show_amount if charge.kind == "sum" else str
    of = f"{show(charge.amount)} of {show(charge.most)}"
    says = f"{of} at a time" if limit.within is None else f"{of} in {limit.within}"
    return Cost(limit.id, limit.action, limit.mode, charge.budget, says)


def _trace(rule: CompiledRule, hit: Hit | None, new_context: NewContext) -> RuleTrace:
    condition = _step(rule.rule.when, new_context) if rule.rule.when is not None else None
    matched = hit is not None and (hit.reason is None or not rule.allows)
    if hit is not None and hit.reason is not None:
        why = f"{hit.reason}: {hit.detail}"
    elif condition is None:
        why = "has no condition"
    elif rule.allows and condition.answer == _ANSWERS[1]:
        why = "an allow needs every view to match, and only some do"
    else:
        why = "its condition holds" if matched else "its condition does not hold"
    if matched and isinstance(rule.rule, ExternalRule):
        why += f"; asks {rule.rule.service}, with {_SENT[rule.rule.arguments]}"
    return RuleTrace(rule.id, rule.rule.action, rule.rule.mode, matched, why, condition, describe_coverage(rule.rule))


def _step(when: When, new_context: NewContext) -> ConditionTrace:
    answer, trouble = _answer(when, new_context)
    match when:
        case Condition():
            asks = ", ".join(f"{name} {operand!r}" for name, operand in when.operators().items())
            return ConditionTrace(f"{when.arg} {asks}", answer, _views(when, new_context), trouble)
        case All(all=parts) | Any_(any=parts):
            name = "all" if isinstance(when, All) else "any"
            return ConditionTrace(name, answer, (), trouble, tuple(_step(part, new_context) for part in parts))
        case Not(not_=part):
            return ConditionTrace("not", answer, (), trouble, (_step(part, new_context),))
        case After(after=earlier, within=within):
            said = earlier.model_dump(by_alias=True, exclude_none=True)
            return ConditionTrace(f"after {said} within {within:g} s", answer, (), trouble)


def _answer(when: When, new_context: NewContext) -> tuple[str, str]:
    context = new_context()
    try:
        bits = compile_when(when)(context)
    except Exception as error:  # noqa: BLE001 - a rule that raises is explained too
        return "cannot tell", f"{type(error).__name__}: {error}"
    trouble = context.take_trouble()
    if trouble is not None and bits != YES:
        return "cannot tell", f"{trouble.reason}: {trouble.detail}"
    return _ANSWERS[bits], ""


def _views(condition: Condition, new_context: NewContext) -> tuple[str, ...]:
    context = new_context()
    arg = parse_arg(condition.arg)
    for name, operand in condition.operators().items():
        # `_answer` reports what is raised here.
        with contextlib.suppress(Exception):
            OPERATORS[name](arg, operand)(context)
    shown: dict[str, None] = {}
    # A context of its own, so all that the operators left in it are the views of this condition.
    for made in context.memo.values():
        if isinstance(made, PathSet):
            shown |= dict.fromkeys((*made.exact, *made.folded, *made.relative))
        elif isinstance(made, Views):
            views = [view for view in (*made.items, *made.extra) if not isinstance(view, PathViews)]
            shown |= dict.fromkeys(text for view in views for text in show_view(view))
    if not shown:
        selection = arg.select(context)
        shown = dict.fromkeys(repr(value) for value in (*selection.exact, *selection.loose))
    return tuple(shown)


def show_view(view: Any) -> tuple[str, ...]:
    """Return a view as texts for people."""
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
        return f"methods: covers {describe_coverage(rule.rule)}"
    tests = (("servers", rule.fits_server), ("tools", rule.fits_tool))
    servers, tools, agents = zip(*names, strict=True)
    for (field, fits), variants in zip(tests, (servers, tools), strict=True):
        if not any(map(fits, variants)):
            return f"{field}: no glob fits"
    if not any(rule.fits_agent(agent, call.identity) for agent in agents):
        return f"agents: {describe_agents(rule.rule.agents, call.identity)}"
    if not rule.fits_hints(call.hints):
        return "annotations: the server declares something else about the tool"
    return "an allow needs every form of the names to fit"


def _because(policy: CompiledPolicy, decision: Decision, traces: Sequence[RuleTrace]) -> str:
    if decision.outcome is Outcome.EXTERNAL:
        services = ", ".join(dict.fromkeys(ask.service for ask in decision.asks if not ask.shadow))
        return f"{services} decides: the proxy asks when the call is made, and explain asks nobody"
    if decision.rule is None:
        return f"no enforcing rule matched, and the default is {policy.default}"
    rivals = [t.rule for t in traces if t.matched and t.mode == "enforce" and t.rule != decision.rule]
    if not rivals:
        return f"{decision.rule} is the only enforcing rule that matched"
    return f"{decision.rule} is the strictest of the rules that matched; so did {', '.join(rivals)}"
