"""Labels and flows, compiled: which apply to a call or a plain request. Pure, no I/O.

A label, and what a flow forbids, apply if any reading of a name fits; an exception only if all do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.core.model import EgressRequest
from proxy.policy.arg_path import parse_arg
from proxy.policy.conditions import Earlier, earlier_in
from proxy.policy.egress import read_target
from proxy.policy.eval_context import EvalContext
from proxy.policy.globs import compile_globs
from proxy.policy.home import UNKNOWN_HOMES
from proxy.policy.host_operators import compile_hosts
from proxy.policy.operators import compile_when
from proxy.policy.server_names import compile_servers
from proxy.policy.text import fold
from proxy.policy.views import NO, YES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.model import Call, Hints, Json
    from proxy.policy.flow_rules import FlowRule, LabelRule, Target
    from proxy.policy.rule_parts import Annotations
    from proxy.policy.rules import Rule

_MAX_CACHED: Final = 4096
TASKS: Final = "tasks/"
# Where a label says nothing of methods: everything by which a server brings content on request.
_BRINGING: Final = ("tools/call", "resources/read", "prompts/get", "tasks/*", "completion/complete")


class CompiledTarget:
    """Globs over calls and hosts. With `strictly`, for an exception, every reading of a name has to fit."""

    def __init__(self, target: Target | Earlier, methods: Sequence[str], *, strictly: bool = False) -> None:
        self._all_of = all if strictly else any
        self._strictly = strictly
        self._fits_server = compile_servers(target.servers, strictly=strictly)
        self._fits_tool = compile_globs(target.tools)
        self._fits_method = compile_globs(target.methods or methods)
        declared: Annotations | None = getattr(target, "annotations", None)
        self._hints = [(name, value) for name, value in declared or () if value is not None]
        hosts: Sequence[str] | None = getattr(target, "hosts", None)
        self._hosts = compile_hosts(tuple(hosts)) if hosts else None
        self._takes_calls = isinstance(target, Earlier) or target.names_calls

    def fits_call(self, call: Call) -> bool:
        """Return whether a call is one of these."""
        if not self._takes_calls or not self._fits_method(call.method) or not self._fits_hints(call.hints):
            return False
        names = (call.server, call.tool or ""), (fold(call.server).strip(), fold(call.tool or "").strip())
        # The result of a task is that of a tool which the message does not name: it may be any.
        any_tool = call.tool is None and call.method.startswith(TASKS) and not self._strictly
        return self._all_of(self._fits_server(server) and (any_tool or self._fits_tool(tool)) for server, tool in names)

    def fits_server(self, server: str) -> bool:
        """Return whether some call of a server may be one of these."""
        return self._takes_calls and self._fits_server(server)

    def fits_host(self, server: str) -> bool:
        """Return whether a plain request to a server, its host and perhaps a port, is one of these."""
        if self._hosts is None:
            return False
        host = server.rpartition(":")[0] if server.rpartition(":")[2].isdigit() and server.count(":") == 1 else server
        target = read_target(EgressRequest(host, 443))
        if target is None:
            return not self._strictly
        return self._hosts.must(target.host) if self._strictly else any(map(self._hosts.may, target.everything()))

    def _fits_hints(self, declared: Hints) -> bool:
        return all(getattr(declared, name) is value for name, value in self._hints)


class CompiledLabel:
    """What a result brings."""

    def __init__(self, rule: LabelRule) -> None:
        self.rule = rule
        self.labels = rule.labels
        self._target = CompiledTarget(rule, _BRINGING)
        self._fits_agent = compile_globs(rule.agents)

    def fits_call(self, call: Call) -> bool:
        return self._fits_agent(call.agent) and self._target.fits_call(call)

    def fits_server(self, server: str, agent: str) -> bool:
        return self._fits_agent(agent) and self._target.fits_server(server)

    def fits_host(self, server: str, agent: str) -> bool:
        return self._fits_agent(agent) and self._target.fits_host(server)


class CompiledFlow:
    """Where labelled data may not go."""

    def __init__(self, rule: FlowRule, homes: tuple[str, ...]) -> None:
        self.rule = rule
        self.labels = rule.labels
        self.by_content = rule.by == "content"
        self._homes = homes
        self._target = CompiledTarget(rule.to, ("tools/call",))
        self._except = CompiledTarget(rule.except_, ("*",), strictly=True) if rule.except_ is not None else None
        self._unless = compile_when(rule.unless) if rule.unless is not None else None
        self._fits_agent = compile_globs(rule.agents)
        self._arguments = [parse_arg(text) for text in rule.to.arguments or ()]

    def fits_call(self, call: Call) -> bool:
        excepted = self._except is not None and self._except.fits_call(call)
        return not excepted and self._fits_agent(call.agent) and self._target.fits_call(call)

    def fits_host(self, server: str, agent: str) -> bool:
        excepted = self._except is not None and self._except.fits_host(server)
        return not excepted and self._fits_agent(agent) and self._target.fits_host(server)

    def spares(self, call: Call) -> bool:
        """Return whether the arguments are such that the data may go, in every reading of them."""
        if self._unless is None:
            return False
        context = self._context(call)
        return self._unless(context) == YES and context.unknown is None

    def outgoing(self, call: Call) -> Json:
        """Return what of a call is looked at: the arguments that the flow names, or all of them."""
        if not self._arguments:
            return call.arguments
        context = self._context(call)
        found: dict[str, Json] = {}
        for path in self._arguments:
            selection = path.select(context)
            if selection.trouble is not None:
                return call.arguments  # what cannot be told apart is looked at as a whole
            found[path.text] = [*selection.exact, *selection.loose]
        return found

    def _context(self, call: Call) -> EvalContext:
        return EvalContext(call.arguments or {}, call.tool or "", self._homes, history=call.history)


class CompiledStep:
    """A call that some rule asks about later: `after`."""

    def __init__(self, earlier: Earlier, lasts: float, homes: tuple[str, ...]) -> None:
        self.label = earlier.label
        self.lasts = lasts
        self.homes = homes
        self._target = CompiledTarget(earlier, ("tools/call",))
        self._where = compile_when(earlier.where) if earlier.where is not None else None

    def may_fit(self, call: Call) -> bool:
        """Return whether a call with other arguments is one of those."""
        return self._target.fits_call(call)

    def fits(self, context: EvalContext) -> bool:
        """Return whether a call that `may_fit` is one of those; one that cannot be judged is."""
        return self._where is None or self._where(context) != NO


@dataclass(frozen=True, slots=True)
class Applying:
    """What of the policy applies to one kind of call: the same for all calls but for their arguments."""

    flows: tuple[CompiledFlow, ...]
    labels: tuple[CompiledLabel, ...]
    steps: tuple[CompiledStep, ...]
    asks: bool
    """Whether a rule asks what came before."""

    @property
    def needs_history(self) -> bool:
        """Whether the decision depends on what came before."""
        return self.asks or bool(self.flows)

    def steps_of(self, call: Call) -> list[CompiledStep]:
        """Return the steps that a call is."""
        if not self.steps:
            return []
        context = EvalContext(call.arguments or {}, call.tool or "", self.steps[0].homes)
        return [step for step in self.steps if step.fits(context)]


NOTHING: Final = Applying((), (), (), asks=False)


class CompiledFlows:
    """The labels and flows of a policy, and what its rules ask about earlier calls."""

    def __init__(
        self,
        labels: Iterable[LabelRule],
        flows: Iterable[FlowRule],
        rules: Iterable[Rule],
        homes: tuple[str, ...] = UNKNOWN_HOMES,
    ) -> None:
        self.labels = tuple(CompiledLabel(rule) for rule in sorted(labels, key=lambda rule: rule.id))
        self.flows = tuple(CompiledFlow(rule, homes) for rule in sorted(flows, key=lambda rule: rule.id))
        asked = [after for rule in rules for after in earlier_in(rule.when)]
        asked += [after for flow in self.flows for after in earlier_in(flow.rule.unless)]
        spans: dict[str, float] = {}
        for flow in self.flows:
            spans |= {label: max(flow.rule.within, spans.get(label, 0.0)) for label in flow.labels}
        for after in asked:
            spans |= {label: max(after.within, spans.get(label, 0.0)) for label in after.after.remembered}
        self._spans: Mapping[str, float] = spans
        steps = {after.after.label: after.after for after in asked if after.after.labels is None}
        self._steps = tuple(CompiledStep(earlier, spans[label], homes) for label, earlier in steps.items())
        self._of_content = {label for flow in self.flows if flow.by_content for label in flow.labels}
        self.value_kinds = frozenset(kind for flow in self.flows if flow.by_content for kind in flow.rule.values)
        self._calls: dict[tuple[str, str, str | None, str, Hints], Applying] = {}
        self._hosts: dict[tuple[str, str], Applying] = {}

    @property
    def in_use(self) -> bool:
        """Whether there is anything to do: a label that nothing asks about needs no work."""
        return bool(self._spans)

    def lasts(self, labels: Iterable[str]) -> float:
        """Return how many seconds marks with these labels are of use; 0 where nothing asks about any of them."""
        return max((self._spans.get(label, 0.0) for label in labels), default=0.0)

    def by_content(self, labels: Iterable[str]) -> bool:
        """Return whether some flow looks for the data of results with one of these labels."""
        return not self._of_content.isdisjoint(labels)

    def for_call(self, call: Call, rules: Iterable[Rule]) -> Applying:
        """Return what applies to a call; `rules` are those whose globs fit it."""
        key = (call.method, call.server, call.tool, call.agent, call.hints)
        found = self._calls.get(key)
        if found is None:
            if len(self._calls) >= _MAX_CACHED:
                self._calls.clear()
            flows = tuple(flow for flow in self.flows if flow.fits_call(call))
            asking = [rule.when for rule in rules] + [flow.rule.unless for flow in flows]
            found = self._calls[key] = Applying(
                flows,
                tuple(label for label in self.labels if label.fits_call(call)),
                tuple(step for step in self._steps if step.may_fit(call)),
                asks=any(True for when in asking for _ in earlier_in(when)),
            )
        return found

    def for_request(self, server: str, agent: str) -> Applying:
        """Return what applies to a plain request."""
        key = (server, agent)
        found = self._hosts.get(key)
        if found is None:
            if len(self._hosts) >= _MAX_CACHED:
                self._hosts.clear()
            found = self._hosts[key] = Applying(
                tuple(flow for flow in self.flows if flow.fits_host(server, agent)),
                tuple(label for label in self.labels if label.fits_host(server, agent)),
                (),
                asks=False,
            )
        return found

    def unmatched(self, server: str, agent: str) -> tuple[CompiledLabel, ...]:
        """Return the labels that a response to an unknown call of a server may bring."""
        return tuple(label for label in self.labels if label.fits_server(server, agent))
