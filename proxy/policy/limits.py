"""Which limits a call is charged to, and with how much. Pure, no I/O: what is used so far is the store's to know.

A limit matches as a deny does: one view of the call is enough. A limit whose condition or amount cannot be judged
refuses the call, because nobody could say what to count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.core.limits import Charge
from proxy.policy.arg_path import parse_arg
from proxy.policy.compiled_rule import CompiledRule, Hit
from proxy.policy.eval_context import NOTHING
from proxy.policy.limit_values import AmountError, read_amount, show_amount, window_seconds
from proxy.policy.rule_parts import ByPeople
from proxy.policy.rules import DenyRule, Limit, TwoPhaseRule
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.core.identity import Identity
    from proxy.core.limits import LimitKind
    from proxy.core.model import Call, Hints
    from proxy.policy.eval_context import EvalContext

BAD_AMOUNT: Final = "limit_amount"
EXCEEDED: Final = "limit_exceeded"
_MAX_KEYS: Final = 4096
_COMMON: Final = (
    "id",
    "description",
    "severity",
    "mode",
    *("agents", "servers", "tools", "methods", "annotations", "when"),
)

type _Names = Callable[[Call], Sequence[tuple[str, str, str]]]
type _Key = tuple[str, str, str | None, str, Hints, Identity | None]


@dataclass(frozen=True, slots=True)
class Charged:
    """What a call is charged, and the limits that refuse it because that cannot be said."""

    charges: tuple[Charge, ...] = ()
    problems: tuple[Hit, ...] = ()


NOT_LIMITED: Final = Charged()


class CompiledLimit:
    """One limit: whether it matches a call, what it charges, and the rule that a call too many meets."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.id = limit.id
        self.rule = CompiledRule(_rule_of(limit))
        self.kind: LimitKind = "count" if limit.count else "sum" if limit.sum else "concurrency"
        self.seconds = window_seconds(limit.within) if limit.within is not None else 0.0
        self.most = limit.count or limit.concurrency or (read_amount(limit.sum.max) if limit.sum else 0)
        self._arg = parse_arg(limit.sum.arg) if limit.sum is not None else None
        self._per = limit.shares
        self._blocks = limit.action != "report" and limit.mode == "enforce"
        self._asks = self._blocks and limit.action == "two_phase"
        self._charges: dict[tuple[str, str, str | None, str, str | None], Charge] = {}

    def charge(self, call: Call, context: EvalContext, rule: str | None) -> Charge | Hit | None:
        """Return what the call is charged, a hit that refuses it, or None where the limit does not match."""
        hit = self.rule.evaluate(context)
        if hit is None:
            return None
        if hit.reason is not None:
            return Hit(self.rule, hit.reason, hit.detail)
        one = self._charge_one(call, rule)
        if self._arg is None:
            return one
        try:
            amount = self._amount(context)
        except AmountError as error:
            assert self.limit.sum is not None
            return Hit(self.rule, BAD_AMOUNT, f"{self.limit.sum.arg}: {error}")
        # Not `replace`, which takes longer than all the rest.
        return Charge(
            *(one.limit, one.kind, one.budget, amount, one.most, one.seconds, one.blocks, one.asks, one.by_session)
        )

    def _charge_one(self, call: Call, rule: str | None) -> Charge:
        """Return a charge of 1 to the budget of a call; made once for all calls alike."""
        key = (call.agent, call.server, call.tool, call.method, rule)
        known = self._charges.get(key)
        if known is None:
            if len(self._charges) >= _MAX_KEYS:
                self._charges.clear()
            known = self._charges[key] = Charge(
                limit=self.id,
                kind=self.kind,
                budget=self.budget(call, rule),
                amount=1,
                most=self.most,
                seconds=self.seconds,
                blocks=self._blocks,
                asks=self._asks,
                by_session="session" in self._per,
            )
        return known

    def budget(self, call: Call, rule: str | None) -> str:
        """Return the name of the budget that a call is charged to; a session's name is added by who knows it."""
        # Names as a lax server would take them, so that `Send_Mail` has no budget of its own beside `send_mail`.
        agent, server = fold(call.agent).strip(), fold(call.server).strip()
        shares = {
            "agent": agent,
            "server": server,
            "tool": fold(call.tool or call.method).strip(),
            "rule": rule or "default",
            # Servers name their sessions, so one of another server or agent may have the same name.
            "session": json.dumps([agent, server]),
            "all": "",
        }
        return json.dumps([self.id, self.kind, *(f"{name}={shares[name]}" for name in self._per)])

    def _amount(self, context: EvalContext) -> int:
        assert self._arg is not None
        found = self._arg.select(context)
        if found.trouble is not None:
            raise AmountError(found.trouble.detail)
        if found is NOTHING or not (found.exact or found.loose):
            raise AmountError("it is missing")
        if found.exact and found.loose:
            raise AmountError("it is there under several names, and servers may take either")
        return sum(map(read_amount, found.exact or found.loose))

    def describe(self, used: int) -> str:
        """Say what is used of the limit."""
        show = show_amount if self.kind == "sum" else str
        if self.kind == "concurrency":
            return f"{used} of {self.most} calls are under way"
        of = f" of {self.limit.sum.arg}" if self.limit.sum else " calls"
        return f"{show(used)} of {show(self.most)}{of} in {self.limit.within} are used"


def _rule_of(limit: Limit) -> DenyRule | TwoPhaseRule:
    """Return the rule that a call too many meets; it matches as the limit does, and shadow mode only records it."""
    common = {name: getattr(limit, name) for name in _COMMON}
    if limit.action == "two_phase":
        approval = limit.approval if isinstance(limit.approval, ByPeople) else ByPeople()
        return TwoPhaseRule.model_validate({**common, "action": "two_phase", "approval": approval})
    if limit.action == "report":
        common["mode"] = "shadow"
    return DenyRule.model_validate({**common, "action": "deny", "respond": limit.respond})


class CompiledLimits:
    """The limits of a policy."""

    def __init__(self, limits: Iterable[Limit], name_variants: _Names) -> None:
        self.compiled = tuple(CompiledLimit(limit) for limit in sorted(limits, key=lambda limit: limit.id))
        self.by_id = {each.id: each for each in self.compiled}
        self._name_variants = name_variants
        self._by_claims = any(each.rule.asks_claims for each in self.compiled)
        self._fitting: dict[_Key, tuple[CompiledLimit, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.compiled)

    def fitting(self, call: Call) -> tuple[CompiledLimit, ...]:
        """Return the limits whose globs fit the call; found once for all calls alike."""
        identity = call.identity if self._by_claims else None
        key = (call.method, call.server, call.tool, call.agent, call.hints, identity)
        found = self._fitting.get(key)
        if found is None:
            if len(self._fitting) >= _MAX_KEYS:
                self._fitting.clear()
            names = self._name_variants(call)
            found = tuple(each for each in self.compiled if each.rule.applies_to(call, names))
            self._fitting[key] = found
        return found

    def charge(self, call: Call, context: EvalContext, rule: str | None) -> Charged:
        """Return what the call is charged by every limit that matches it."""
        fitting = self.fitting(call)
        if not fitting:
            return NOT_LIMITED
        found = [each.charge(call, context, rule) for each in fitting]
        return Charged(
            tuple(one for one in found if isinstance(one, Charge)), tuple(one for one in found if isinstance(one, Hit))
        )

    def beyond(self, used: Mapping[str, int]) -> list[Hit]:
        """Return the hits of the limits that are used up, by what is used of each."""
        hits = []
        for name, amount in used.items():
            limit = self.by_id[name]
            # A call that people may still let pass is no refusal: its hit has no reason.
            reason = None if isinstance(limit.rule.rule, TwoPhaseRule) else EXCEEDED
            hits.append(Hit(limit.rule, reason, limit.describe(amount)))
        return hits
