"""Two versions of a policy in one process: some agents' calls are decided by the canary, all others by the stable one.

Pure, no I/O. Which version decides is chosen by the agent's name before anything is decided, and one version decides
all of a call. Neither version is known to be the stricter one. So where no agent is known, both decide, and the
stricter outcome counts; and what cannot differ by agent must be the same in both (`agentless`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from proxy.core.model import Outcome
from proxy.policy.decide import CompiledPolicy
from proxy.policy.egress import CompiledEgress
from proxy.policy.globs import compile_globs
from proxy.policy.incoming import CompiledIncoming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.core.model import Call, Decision, EgressRequest, Governed, Screening
    from proxy.policy.compiled_rule import CompiledRule, Hit
    from proxy.policy.decide import CallPlan
    from proxy.policy.eval_context import EvalContext
    from proxy.policy.flows import Applying
    from proxy.policy.load import PolicySource

# Sections that hold for a whole process, whoever calls.
SECTIONS: Final = ("pins", "detectors", "labels", "flows", "sandbox")
_STRICTNESS: Final = (Outcome.ALLOW, Outcome.TWO_PHASE, Outcome.DENY)


def agentless(sources: Iterable[PolicySource]) -> dict[str, Any]:
    """Return what a policy says that cannot differ by agent, by section."""
    contents = [source.content for source in sources]
    found: dict[str, Any] = {
        name: [dumped for content in contents if (dumped := content.model_dump(mode="json")[name])] for name in SECTIONS
    }
    found["rules on: observed"] = [rule.model_dump(mode="json") for c in contents for rule in c.observed_rules]
    return found


def differing(stable: Mapping[str, Any], canary: Mapping[str, Any]) -> list[str]:
    """Return the sections, as `agentless` gives them, that keep two policies from being told apart by agent."""
    return [name for name, said in stable.items() if canary.get(name) != said]


class _Choice[T]:
    """Which of two parts is for an agent."""

    def __init__(self, stable: T, canary: T, fits: Callable[[str], bool]) -> None:
        self.stable = stable
        self.canary = canary
        self._fits = fits

    def of(self, agent: str) -> T:
        return self.canary if agent and self._fits(agent) else self.stable


class PolicyByAgent(CompiledPolicy):
    """A policy of two versions. What has no agent in it is the stable version's, which is the same in the canary."""

    def __init__(self, stable: CompiledPolicy, canary: CompiledPolicy, agents: Sequence[str]) -> None:
        vars(self).update(vars(stable))
        fits = compile_globs(agents)
        self._by = _Choice(stable, canary, fits)
        self.egress = _EgressByAgent(stable.egress, canary.egress, fits)
        self.incoming = _IncomingByAgent(stable.incoming, canary.incoming, fits)
        self.offers_tasks = stable.offers_tasks or canary.offers_tasks
        # In caches it stands for both: a new version of either is another pair.
        self.version = f"{stable.version}+{canary.version}"

    @property
    def versions(self) -> tuple[str, str]:
        """What decisions call the stable version and the canary."""
        return self._by.stable.version, self._by.canary.version

    def decide(self, call: Call) -> Decision:
        if not call.agent:
            return _stricter(self._by.stable.decide(call), self._by.canary.decide(call))
        return self._by.of(call.agent).decide(call)

    def decide_beyond(self, call: Call, used: Mapping[str, int]) -> Decision:
        if not call.agent:
            return _stricter(self._by.stable.decide_beyond(call, used), self._by.canary.decide_beyond(call, used))
        return self._by.of(call.agent).decide_beyond(call, used)

    def unmatched(self, server: str) -> Decision:
        return _stricter(self._by.stable.unmatched(server), self._by.canary.unmatched(server))

    @property
    def has_two_phase(self) -> bool:
        return self._by.stable.has_two_phase or self._by.canary.has_two_phase

    def applying(self, call: Call) -> Applying:
        return self._by.of(call.agent).applying(call)

    def could_allow(self, call: Call) -> bool:
        return self._by.of(call.agent).could_allow(call)

    def governs(self, call: Call) -> Governed:
        return self._by.of(call.agent).governs(call)

    def offers_task(self, call: Call) -> bool:
        return self._by.of(call.agent).offers_task(call)

    def context_of(self, call: Call) -> EvalContext:
        return self._by.of(call.agent).context_of(call)

    def rules_for(self, call: Call) -> tuple[CompiledRule, ...]:
        return self._by.of(call.agent).rules_for(call)

    def plan_for(self, call: Call) -> CallPlan:
        return self._by.of(call.agent).plan_for(call)

    def conclude(self, call: Call, hits: Sequence[Hit]) -> Decision:
        return self._by.of(call.agent).conclude(call, hits)


class _EgressByAgent(CompiledEgress):
    def __init__(self, stable: CompiledEgress, canary: CompiledEgress, fits: Callable[[str], bool]) -> None:
        vars(self).update(vars(stable))
        self._by = _Choice(stable, canary, fits)
        self.counts_names = stable.counts_names or canary.counts_names
        self.allows_by_address = stable.allows_by_address or canary.allows_by_address

    def decide(self, request: EgressRequest, operator: Sequence[tuple[str, int]] = ()) -> Decision:
        if not request.agent:
            return _stricter(self._by.stable.decide(request, operator), self._by.canary.decide(request, operator))
        return self._by.of(request.agent).decide(request, operator)

    def names(self, decision: Decision) -> bool:
        canary = self._by.canary
        return (canary if decision.policy_version == canary.version else self._by.stable).names(decision)


class _IncomingByAgent(CompiledIncoming):
    def __init__(self, stable: CompiledIncoming, canary: CompiledIncoming, fits: Callable[[str], bool]) -> None:
        vars(self).update(vars(stable))
        self._by = _Choice(stable, canary, fits)

    def __bool__(self) -> bool:
        return bool(self._by.stable) or bool(self._by.canary)

    def asked(self, place: Any, server: str, agent: str, tool: str = "") -> tuple[Screening, ...]:
        if not agent:
            both = (self._by.stable, self._by.canary)
            return tuple(dict.fromkeys(one for side in both for one in side.asked(place, server, agent, tool)))
        return self._by.of(agent).asked(place, server, agent, tool)


def _stricter(stable: Decision, canary: Decision) -> Decision:
    """Return the stricter of two decisions, the stable version's where they are alike; redactions add up."""
    winner = max((stable, canary), key=lambda one: _STRICTNESS.index(one.outcome))
    redactions = tuple(dict.fromkeys((*stable.redactions, *canary.redactions)))
    return replace(winner, redactions=redactions) if redactions != winner.redactions else winner
