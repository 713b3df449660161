"""Decide a call by the rules of a policy. Pure, no I/O; `decide` never raises.

Every matching rule counts, in any order: deny wins over two_phase, two_phase over allow;
redactions add up; shadow rules are only recorded. A deny, a two_phase and a redact match
if any view of the call does, an allow only if all do. What cannot be judged is denied.
What another service has to be asked about has the outcome EXTERNAL until its answer is in the call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.core.model import Call, Decision, Governed, Hints, Outcome, PinRules, Redaction
from proxy.core.proposals import Terms
from proxy.policy.compiled_rule import POLICY_ERROR, CompiledRule, Hit
from proxy.policy.detector_rules import CompiledSuppression, Suppression
from proxy.policy.egress import CompiledEgress
from proxy.policy.eval_context import EvalContext
from proxy.policy.flows import NOTHING, Applying, CompiledFlows
from proxy.policy.globs import is_glob
from proxy.policy.home import UNKNOWN_HOMES
from proxy.policy.incoming import CompiledIncoming
from proxy.policy.limits import CompiledLimits
from proxy.policy.observed import CompiledObserved
from proxy.policy.rule_index import RuleIndex
from proxy.policy.rules import AllowRule, DenyRule, EgressPolicy, ExternalRule, Limit, RedactRule, Rule, TwoPhaseRule
from proxy.policy.sandboxes import CompiledSandboxes
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from proxy.core.external import Ask
    from proxy.core.identity import Identity
    from proxy.core.limits import Charge
    from proxy.policy.flow_rules import FlowRule, LabelRule
    from proxy.policy.observed import ObservedRule

DENIED: Final = "policy_denied"
DEFAULT_DENY: Final = "default_deny"
TWO_PHASE: Final = "two_phase_required"
ALLOWED: Final = "policy_allowed"
UNANSWERED: Final = "external_unavailable"
DEFAULT_ALLOW: Final = "default_allow"

# Methods that keep a session alive and use nothing of the server. A default of deny does not refuse
# these, or no client could connect; a rule that names them can.
SESSION_METHODS: Final = frozenset(
    (
        *("initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/unsubscribe"),
        *("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "notifications/initialized"),
        *("notifications/cancelled", "notifications/progress", "notifications/roots/list_changed"),
        # Of A2A, what looks at a task that was allowed, or ends it.
        *("tasks/resubscribe", "agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"),
        *("GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
    )
)

# All of a call but its arguments.
type _Key = tuple[str, str, str | None, str, Hints, Identity | None]

# Where rules differ in how an agent waits: first the way that shows in the tool list.
_HOWS: Final = ("propose", "elicit", "task", "hold")
_SEVERITIES: Final = ("info", "low", "medium", "high", "critical")
# Bounds on the caches: an agent that invents tool names could fill the memory otherwise. Plans are
# large, so only a few are cached beyond those of the tools that rules name.
_MAX_BUCKETS: Final = 4096
_MAX_PLANS: Final = 256
_DEFAULT_MESSAGE: Final = "No rule allows this call, and the policy denies by default."


class _Index:
    """Rules by tool name: plain names in a dict, rules with globs or without names in a list."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self._named: dict[str, list[CompiledRule]] = {}
        self._others: list[CompiledRule] = []
        for rule in rules:
            tools = rule.rule.tools
            if tools is None or any(is_glob(tool) for tool in tools):
                self._others.append(rule)
            else:
                for tool in set(tools):
                    self._named.setdefault(tool, []).append(rule)

    def rules_for(self, call: Call) -> tuple[CompiledRule, ...]:
        names = name_variants(call)
        found = {
            id(rule): rule
            for tool in dict.fromkeys(tool for _, tool, _ in names)
            for rule in (*self._named.get(tool, ()), *self._others)
        }
        return tuple(rule for rule in found.values() if rule.applies_to(call, names))


def name_variants(call: Call) -> tuple[tuple[str, str, str], ...]:
    """Return a call's server, tool and agent as given, and as a lax server would take them."""
    names = (call.server, call.tool or "", call.agent)
    lax = (fold(names[0]).strip(), fold(names[1]).strip(), fold(names[2]).strip())
    return (names,) if lax == names else (names, lax)


class CallPlan(NamedTuple):
    """What of a policy applies to calls of one kind: the same for all of them, but for their arguments."""

    rules: RuleIndex
    otherwise: Decision  # where no condition of a rule holds
    limited: bool
    flows: Applying


class CompiledPolicy:
    """A compiled policy; implements `interfaces.Policy`."""

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        default: str = "deny",
        version: str = "",
        egress: CompiledEgress | None = None,
        pins: PinRules | None = None,
        detectors: Iterable[Mapping[str, Any]] = (),
        suppressions: Iterable[Suppression] = (),
        homes: Iterable[str] = (),
        limits: Iterable[Limit] = (),
        labels: Iterable[LabelRule] = (),
        flows: Iterable[FlowRule] = (),
        incoming: CompiledIncoming | None = None,
        observed: Iterable[ObservedRule] = (),
        sandboxes: CompiledSandboxes | None = None,
    ) -> None:
        self.version = version
        self.files: tuple[Path, ...] = ()
        self.limits = CompiledLimits(limits, name_variants)
        self.pins = pins or PinRules()
        self.incoming = incoming or CompiledIncoming()
        self.sandboxes = sandboxes or CompiledSandboxes()
        self.egress = egress or CompiledEgress(EgressPolicy(), version=version)
        self.default = default
        self.detectors = tuple(detectors)
        self._homes = tuple(dict.fromkeys(homes)) or UNKNOWN_HOMES
        self.observed = CompiledObserved(observed, self._homes)
        self._suppressions = tuple(map(CompiledSuppression, suppressions))
        self.compiled = tuple(CompiledRule(rule) for rule in sorted(rules, key=lambda rule: rule.id))
        self.rules: Mapping[str, Rule] = {compiled.id: compiled.rule for compiled in self.compiled}
        self.offers_tasks = any(map(_is_task_rule, self.rules.values()))
        self._flows = CompiledFlows(labels, flows, self.rules.values(), self._homes)
        # The labels and flows; None where nothing in the policy asks what came before.
        self.flows: CompiledFlows | None = self._flows if self._flows.in_use else None
        self._default_allow = Decision(Outcome.ALLOW, DEFAULT_ALLOW, policy_version=version)
        self._default_deny = Decision(Outcome.DENY, DEFAULT_DENY, message=_DEFAULT_MESSAGE, policy_version=version)
        self._index = _Index(self.compiled)
        limited = (limit.rule for limit in self.limits.compiled)
        self._by_claims = any(rule.asks_claims for rule in (*self.compiled, *limited))
        self._buckets: dict[_Key, tuple[CompiledRule, ...]] = {}
        self._prepared: dict[_Key, CallPlan] = {}
        self._plans: dict[tuple[CompiledRule, ...], RuleIndex] = {}
        self._most_plans = _MAX_PLANS
        self._conclusions: dict[tuple[str, str, str | None, tuple[Hit, ...]], Decision] = {}

    def decide(self, call: Call) -> Decision:
        """Decide `call`; a value that cannot be judged is a deny with its own reason."""
        try:
            plan = self.plan_for(call)
            context = self.context_of(call)
            hits = plan.rules.evaluate(context)
            if hits is None and call.answers is not None:
                hits = list(plan.rules.certain.values())
            decision = plan.otherwise if hits is None else self.conclude(call, hits)
            # A denied call costs nothing. Most policies have no limits, and most calls meet none.
            if plan.limited and decision.outcome is not Outcome.DENY:
                decision = self._charge(call, context, decision, plan.rules.certain.values() if hits is None else hits)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever goes wrong is a refusal
            return self._undecidable(error)
        return decision

    def _undecidable(self, error: Exception) -> Decision:
        message = f"The call could not be judged ({type(error).__name__})."
        return Decision(Outcome.DENY, POLICY_ERROR, message=message, policy_version=self.version)

    def _charge(self, call: Call, context: EvalContext, decision: Decision, hits: Iterable[Hit]) -> Decision:
        """Return the decision with what the call is charged; a refusal where a limit cannot say what that is."""
        charged = self.limits.charge(call, context, decision.rule)
        if charged.problems:
            decision = self.conclude(call, [*hits, *charged.problems])
        return _charged(decision, charged.charges) if charged.charges else decision

    def decide_beyond(self, call: Call, used: Mapping[str, int]) -> Decision:
        """Decide a call that these limits have no room for, by what is used of each."""
        try:
            plan = self.plan_for(call).rules
            hits = plan.evaluate(self.context_of(call))
            found = list(plan.certain.values()) if hits is None else hits
            return self.conclude(call, [*found, *self.limits.beyond(used)])
        except Exception as error:  # noqa: BLE001 - the boundary, as in `decide`
            return self._undecidable(error)

    def context_of(self, call: Call) -> EvalContext:
        """Return what conditions are evaluated against for `call`."""
        return EvalContext(call.arguments or {}, call.tool or "", self._homes, history=call.history)

    @property
    def has_two_phase(self) -> bool:
        """Whether a rule or a limit in force may ask for people or for a second phase, which needs the store."""
        limits = (limit.rule for limit in self.limits.compiled)
        return any(isinstance(one.rule, TwoPhaseRule) and not one.shadow for one in (*self.compiled, *limits))

    def applying(self, call: Call) -> Applying:
        """Return which labels, flows and questions about earlier calls apply to a call."""
        return self.plan_for(call).flows

    def could_allow(self, call: Call) -> bool:
        """Return whether there may be arguments with which a call of the tool is not denied."""
        # A rule in shadow mode hides nothing, and two_phase is not a denial.
        live = self._live_rules(call)
        if live is None or any(isinstance(rule, DenyRule) and rule.when is None for rule in live):
            return False
        lets = AllowRule | TwoPhaseRule | ExternalRule
        return self.default == "allow" or any(isinstance(rule, lets) for rule in live)

    def governs(self, call: Call) -> Governed:
        """Return whether calls of the tool are proposed and committed: never, by their arguments, or always.

        What cannot be judged is denied when it is called, so it is not two-phase. Calls that wait for people in
        another way are made as ever.
        """
        phased = [
            rule for rule in self._live_rules(call) or () if isinstance(rule, TwoPhaseRule) and rule.how == "propose"
        ]
        if not phased:
            beyond = [limit.rule for limit in self.limits.fitting(call)]
            asks = any(isinstance(r.rule, TwoPhaseRule) and r.rule.how == "propose" and not r.shadow for r in beyond)
            return "sometimes" if asks else "never"
        return "always" if any(rule.when is None for rule in phased) else "sometimes"

    def offers_task(self, call: Call) -> bool:
        """Return whether calls of the tool may wait for people as a task of the proxy's own."""
        return self.offers_tasks and any(_is_task_rule(rule) for rule in self._live_rules(call) or ())

    def _live_rules(self, call: Call) -> list[Rule] | None:
        try:
            return [rule.rule for rule in self.rules_for(call) if not rule.shadow]
        except Exception:  # noqa: BLE001 - the boundary: what cannot be judged would be denied
            return None

    def unmatched(self, server: str) -> Decision:
        """Return the redactions of every rule that may apply to calls to `server`, for a response without a call.

        Nothing is suppressed: which tool the response belongs to is unknown.
        """
        names = (server, fold(server).strip())
        found = [
            Hit(rule)
            for rule in self.compiled
            if not rule.shadow and isinstance(rule.rule, RedactRule) and any(map(rule.fits_server, names))
        ]
        redactions = _redactions(found, (), Call("", server, ""))
        return Decision(Outcome.ALLOW, DEFAULT_ALLOW, redactions=redactions, policy_version=self.version)

    def rules_for(self, call: Call) -> tuple[CompiledRule, ...]:
        """Return the rules whose globs fit the call, in the order of their ids."""
        key = self._key(call)
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= _MAX_BUCKETS:
                self._buckets.clear()
            found = self._buckets[key] = self._index.rules_for(call)
        return found

    def _key(self, call: Call) -> _Key:
        # Most policies ask for no claims: there, agents of one name need not be told apart.
        identity = call.identity if self._by_claims else None
        return call.method, call.server, call.tool, call.agent, call.hints, identity

    def plan_for(self, call: Call) -> CallPlan:
        """Return what applies to a call by its names alone; found once for all calls alike."""
        key = self._key(call)
        found = self._prepared.get(key)
        if found is None:
            rules = self.rules_for(call)
            if len(self._prepared) >= _MAX_BUCKETS:
                self._prepared.clear()
                self._plans.clear()
            index = self._plan(rules)
            certain = list(index.certain.values())
            default = self._default_allow if self._allows_by_default(call) else self._default_deny
            found = self._prepared[key] = CallPlan(
                index,
                self.conclude(call, certain) if certain else default,
                bool(self.limits.fitting(call)),
                NOTHING if self.flows is None else self.flows.for_call(call, [each.rule for each in rules]),
            )
        return found

    def _plan(self, rules: tuple[CompiledRule, ...]) -> RuleIndex:
        plan = self._plans.get(rules)
        if plan is None:
            if len(self._plans) >= self._most_plans:
                self._prepared.clear()
                self._plans.clear()
            plan = self._plans[rules] = RuleIndex(rules)
        return plan

    def prepare(self) -> None:
        """Make the plans for the tools that rules name, so that the first calls do not wait for them."""
        tools = {tool for compiled in self.compiled for tool in compiled.rule.tools or () if not is_glob(tool)}
        self._most_plans = len(tools) + _MAX_PLANS
        for tool in ("", *sorted(tools)):
            self._plan(self._index.rules_for(Call("tools/call", "", "", tool)))

    def conclude(self, call: Call, hits: Sequence[Hit]) -> Decision:
        """Return the decision that follows from `hits`; the same hits on such a call are decided once."""
        # A detail quotes the call's values, and an answer is about this call: such decisions are not cached.
        if call.answers is not None or any(hit.detail for hit in hits):
            return self._weigh(call, hits)
        key = (call.method, call.server, call.tool, tuple(hits))
        known = self._conclusions.get(key)
        if known is None:
            if len(self._conclusions) >= _MAX_BUCKETS:
                self._conclusions.clear()
            known = self._conclusions[key] = self._weigh(call, hits)
        return known

    def _weigh(self, call: Call, hits: Sequence[Hit]) -> Decision:
        hits, asks = _answered(call, hits)
        live = [hit for hit in hits if not hit.rule.shadow]
        matched = tuple(sorted(hit.rule.id for hit in live if _matched(hit)))
        shadow = tuple(sorted(hit.rule.id for hit in hits if hit.rule.shadow and _would_act(hit)))
        redactions = _redactions(live, self._suppressions, call)
        fields: dict[str, Any] = {"matched": matched, "shadow": shadow, "redactions": redactions}
        winner = _winner(live)
        if winner is None:
            # Only rules in shadow mode have something to ask here.
            if asks and self._allows_by_default(call):
                fields["asks"] = tuple(asks)
            return self._by_default(call, live, fields)
        hit, outcome, reason = winner
        if outcome is not Outcome.DENY and asks:
            fields["asks"] = tuple(asks)
            if (first := next((ask for ask in asks if not ask.shadow), None)) is not None:
                return Decision(Outcome.EXTERNAL, UNANSWERED, first.rule, policy_version=self.version, **fields)
        rule, detail = hit.rule.rule, hit.detail
        fields["message"] = (
            f"{rule.description} ({detail})" if rule.description and detail else rule.description or detail
        )
        fields["respond"] = rule.respond if isinstance(rule, DenyRule | ExternalRule) else "result"
        fields["terms"] = _terms(rule.id, live) if outcome is Outcome.TWO_PHASE else None
        return Decision(outcome, reason, rule.id, severity=rule.severity, policy_version=self.version, **fields)

    def _allows_by_default(self, call: Call) -> bool:
        return self.default == "allow" or call.method in SESSION_METHODS

    def _by_default(self, call: Call, live: Sequence[Hit], fields: dict[str, Any]) -> Decision:
        if self._allows_by_default(call):
            return replace(self._default_allow, **fields)
        unsure = min((hit for hit in live if not _matched(hit)), key=lambda hit: hit.rule.id, default=None)
        if unsure is None:
            return replace(self._default_deny, **fields)
        reason = unsure.reason or DEFAULT_DENY
        return replace(self._default_deny, reason=reason, rule=unsure.rule.id, message=unsure.detail, **fields)


def _charged(decision: Decision, charges: tuple[Charge, ...]) -> Decision:
    # Not `replace`: every call that a limit applies to comes here, and that takes three times as long.
    d = decision
    return Decision(
        *(d.outcome, d.reason, d.rule, d.message, d.respond, d.severity, d.matched, d.shadow, d.redactions),
        *(d.policy_version, d.terms, charges, d.asks),
    )


def _answered(call: Call, hits: Sequence[Hit]) -> tuple[Sequence[Hit], list[Ask]]:
    """Return the hits with what services answered, and what has to be asked yet."""
    if not any(isinstance(hit.rule.rule, ExternalRule) for hit in hits):
        return hits, []
    asks: list[Ask] = []
    found: list[Hit] = []
    for hit in hits:
        rule = hit.rule.rule
        # One whose condition could not be judged refuses, whatever a service would say.
        if not isinstance(rule, ExternalRule) or hit.reason is not None:
            found.append(hit)
            continue
        ask = rule.ask()
        answer = (call.answers or {}).get(ask)
        if answer is None:
            asks.append(ask)
        reason, said = (None, "") if answer is None else (answer.reason, answer.detail)
        found.append(Hit(hit.rule, reason, said))
    return found, asks


def _would_act(hit: Hit) -> bool:
    """Return whether a rule in shadow mode has something to report; an external one, only that it would refuse."""
    return _matched(hit) and (hit.reason is not None or not isinstance(hit.rule.rule, ExternalRule))


def _matched(hit: Hit) -> bool:
    # An allow that could not be judged has a hit for its reason, but did not match.
    return hit.reason is None or not hit.rule.allows


def _winner(live: Sequence[Hit]) -> tuple[Hit, Outcome, str] | None:
    # A deny refuses, a two_phase that could not be judged, and any rule that raised.
    denies = [
        hit
        for hit in live
        if hit.reason == POLICY_ERROR
        or isinstance(hit.rule.rule, DenyRule)
        or (hit.reason is not None and isinstance(hit.rule.rule, TwoPhaseRule | ExternalRule))
    ]
    if denies:
        # A rule that surely matched is reported before one that could not be judged.
        hit = min(denies, key=lambda h: (h.reason is not None, -_SEVERITIES.index(h.rule.rule.severity), h.rule.id))
        return hit, Outcome.DENY, hit.reason or DENIED
    phased = [(hit, rule) for hit in live if isinstance(rule := hit.rule.rule, TwoPhaseRule)]
    if phased:
        hit, _ = min(phased, key=lambda pair: (not pair[1].by_people, pair[1].block_threshold, pair[1].id))
        return hit, Outcome.TWO_PHASE, TWO_PHASE
    # Without a reason against it, an external rule is one whose service said yes, or will have to.
    lets = [hit for hit in live if hit.rule.allows or isinstance(hit.rule.rule, ExternalRule)]
    allows = [hit for hit in lets if hit.reason is None]
    return (min(allows, key=lambda hit: hit.rule.id), Outcome.ALLOW, ALLOWED) if allows else None


def _terms(rule_id: str, live: Sequence[Hit]) -> Terms:
    """Return the strictest of each term over the two_phase rules that matched, with the weights of the winner."""
    rules = [hit.rule.rule for hit in live if isinstance(hit.rule.rule, TwoPhaseRule)]
    winner = next(rule for rule in rules if rule.id == rule_id)
    return Terms(
        rule=rule_id,
        approval="human" if any(rule.by_people for rule in rules) else "auto",
        review=all(rule.review for rule in rules),
        block_threshold=min(rule.block_threshold for rule in rules),
        weights=winner.weights.model_dump(),
        token_seconds=min(rule.token_seconds for rule in rules),
        approval_seconds=min(rule.approval_seconds for rule in rules),
        how=min((rule.how for rule in rules), key=_HOWS.index),
        people=max(rule.people for rule in rules),
        own="refuse" if any(rule.own == "refuse" for rule in rules) else "allow",
        hold_seconds=min((rule.hold_seconds for rule in rules if rule.hold_seconds is not None), default=None),
    )


def _redactions(live: Sequence[Hit], suppressions: Sequence[CompiledSuppression], call: Call) -> tuple[Redaction, ...]:
    rules = [rule for hit in live if isinstance(rule := hit.rule.rule, RedactRule)]
    ignored = [tuple(entry.value for entry in suppressions if entry.applies(rule.id, call)) for rule in rules]
    return tuple(
        Redaction(rule.id, tuple(rule.detectors), frozenset(rule.on), rule.redact, values)
        for rule, values in zip(rules, ignored, strict=True)
    )


def _is_task_rule(rule: Rule) -> bool:
    return isinstance(rule, TwoPhaseRule) and rule.how == "task"
