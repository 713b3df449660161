"""One compiled rule: whether it applies to a call, and whether its condition holds. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.policy.agents import ClaimMatch, compile_agents, entries
from proxy.policy.globs import compile_globs
from proxy.policy.operators import compile_when
from proxy.policy.rules import AllowRule, Rule, covered_methods
from proxy.policy.server_names import compile_servers
from proxy.policy.views import YES, Test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Call, Hints
    from proxy.policy.eval_context import EvalContext

POLICY_ERROR: Final = "policy_error"


class Hit(NamedTuple):
    """A rule that matched, or whose condition could not be judged: then `reason` says why."""

    rule: CompiledRule
    reason: str | None = None
    detail: str = ""


class CompiledRule:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.id = rule.id
        self.test: Test = compile_when(rule.when) if rule.when is not None else lambda _context: YES
        self.fits_method = compile_globs(covered_methods(rule))
        self.allows = isinstance(rule, AllowRule)
        self.fits_server = compile_servers(rule.servers, strictly=self.allows)
        self.fits_tool = compile_globs(rule.tools)
        self.fits_agent = compile_agents(rule.agents)
        self._hints = [(name, value) for name, value in rule.annotations or () if value is not None]
        self.shadow = rule.mode == "shadow"
        self.asks_claims = any(isinstance(one, ClaimMatch) for one in entries(rule.agents))

    def fits_hints(self, declared: Hints) -> bool:
        return all(getattr(declared, name) is value for name, value in self._hints)

    def applies_to(self, call: Call, names: Sequence[tuple[str, str, str]]) -> bool:
        """Return whether the rule's globs fit the call.

        `names` are the call's names in every reading. One is enough for a restriction, so that
        "Read_File" does not slip past a deny of "read_file"; an allow needs all of them.
        """
        if not self.fits_method(call.method) or not self.fits_hints(call.hints):
            return False
        quantifier = all if self.allows else any
        return quantifier(
            self.fits_server(server) and self.fits_tool(tool) and self.fits_agent(agent, call.identity)
            for server, tool, agent in names
        )

    def evaluate(self, context: EvalContext) -> Hit | None:
        """Return what the rule makes of the arguments; None where it does not match.

        An allow that does not match because a value could not be judged returns a hit with the reason.
        """
        try:
            bits = self.test(context)
            if not bits:
                return None
            if bits == YES or context.unknown is None:
                return Hit(self) if bits == YES or not self.allows else None
            return self._evaluate_again(context)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a rule is a refusal
            return Hit(self, POLICY_ERROR, f"{type(error).__name__}: {error}")

    def _evaluate_again(self, context: EvalContext) -> Hit | None:
        """Return whether the rule matched only because a value could not be judged."""
        # The first pass guessed "may" for such values. With the guess turned to "must" alone, bit 0
        # survives only where some other value, one that can be judged, makes the rule match.
        context.take_trouble()
        context.guess = 2
        try:
            bits = self.test(context)
        finally:
            context.guess = 1
        trouble = context.take_trouble()
        if trouble is None or (bits & 1 and not self.allows):
            return None if self.allows else Hit(self)
        return Hit(self, trouble.reason, trouble.detail)
