"""Which of the rules that apply to a tool need to be evaluated for a call. Pure, no I/O.

A plan is made once for each set of rules. It skips a rule only where evaluating it would have
returned no and raised nothing. So the conditions in an index are ones that the whole cannot
hold without and that nothing is evaluated before. A rule without such a condition, for
example one that negates, is evaluated every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.policy.arg_path import EvalContext, parse_arg
from proxy.policy.compiled_rule import Hit
from proxy.policy.conditions import All, Any_, Condition, as_tuple
from proxy.policy.rule_index import INDEXES, Leaf, index_presence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.model import JsonObject
    from proxy.policy.arg_path import ArgPath
    from proxy.policy.compiled_rule import CompiledRule
    from proxy.policy.conditions import When
    from proxy.policy.rule_index import Build, Index


class _Need(NamedTuple):
    """A condition that a rule cannot match without."""

    arg: str
    build: Build
    operand: Any


class Plan:
    """The rules that apply to a tool, and the indexes that choose among them.

    `certain` has the hits of the rules without a condition, by number.
    """

    __slots__ = ("_always", "_indexes", "_rules", "certain")

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self._rules = rules
        self.certain = {number: Hit(rule) for number, rule in enumerate(rules) if rule.rule.when is None}
        needs = {number: _needs(rule.rule.when) for number, rule in enumerate(rules) if rule.rule.when is not None}
        self._always = [number for number, found in needs.items() if found is None]
        self._indexes = tuple(_indexes({number: found for number, found in needs.items() if found is not None}))

    def evaluate(self, arguments: JsonObject) -> list[Hit] | None:
        """Return the hits of the rules in their order; None where only rules without a condition match."""
        context = EvalContext(arguments)
        chosen = set(self._always)
        for arg, indexes, members in self._indexes:
            try:
                if not arg.is_absent(context):
                    for index in indexes:
                        chosen.update(index(context))
            except Exception:  # noqa: BLE001 - the rules meet it again and report it
                chosen |= members
        if not chosen:
            return None
        hits = {number: hit for number in chosen if (hit := _evaluate(self._rules[number], context)) is not None}
        if not hits:
            return None
        hits |= self.certain
        return [hits[number] for number in sorted(hits)]


def _evaluate(rule: CompiledRule, context: EvalContext) -> Hit | None:
    # Most rules do not match, and the bare test finds that out at the least cost.
    try:
        if not rule.test(context):
            return None
    except Exception:  # noqa: BLE001, S110 - `evaluate` meets it again and reports it
        pass
    return rule.evaluate(context)


def _needs(when: When) -> list[_Need] | None:
    """Return conditions of which at least one holds wherever the whole does; None where there are none."""
    match when:
        case Condition():
            return _need(when)
        case Any_(any=parts):
            found = [_needs(part) for part in parts]
            return None if None in found else [need for needs in found for need in needs or ()]
        case All(all=parts):
            # Only the first will do: it is evaluated, and may raise, even where a later part is false.
            return _needs(parts[0])
        case _:
            return None


def _need(condition: Condition) -> list[_Need] | None:
    name, operand = next(iter(condition.operators().items()))
    build = INDEXES.get(name)
    if build is None or (name == "exists" and not operand):
        return None
    if name in ("equals", "in") and None in as_tuple(operand):
        build = index_presence
    return [_Need(condition.arg, build, operand)]


def _indexes(needs: dict[int, list[_Need]]) -> Iterator[tuple[ArgPath, tuple[Index, ...], frozenset[int]]]:
    groups: dict[str, dict[Build, list[Leaf]]] = {}
    for number, found in needs.items():
        for need in found:
            groups.setdefault(need.arg, {}).setdefault(need.build, []).append(Leaf(need.operand, number))
    for text, kinds in groups.items():
        arg = parse_arg(text)
        members = frozenset(leaf.rule for leaves in kinds.values() for leaf in leaves)
        yield arg, tuple(build(arg, leaves) for build, leaves in kinds.items()), members
