"""Which of the rules that speak of a tool are worth asking about a call. Pure, no I/O.

Made once for each set of rules. A rule is passed over only where its condition, asked by
itself, would have said no and broken nothing: conditions that are put in an index are the
ones without which the whole cannot hold and before which nothing else is asked. A rule
that has none, such as one that negates, is asked every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.policy.arg_path import parse_arg
from proxy.policy.compiled_rule import Hit
from proxy.policy.conditions import All, Any_, Condition, as_tuple
from proxy.policy.rule_index import INDEXES, Leaf, index_presence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.policy.arg_path import ArgPath, EvalContext
    from proxy.policy.compiled_rule import CompiledRule
    from proxy.policy.conditions import When
    from proxy.policy.rule_index import Build, Index


class _Need(NamedTuple):
    """A condition that must not be no if a rule is to match."""

    arg: str
    build: Build
    operand: Any


class Plan:
    """Rules, and the order to ask them in."""

    __slots__ = ("_always", "_indexes", "_rules", "certain")

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self._rules = rules
        self.certain = {number: Hit(rule) for number, rule in enumerate(rules) if rule.rule.when is None}
        """What the rules without a condition say, by their number."""
        needs = {number: _needs(rule.rule.when) for number, rule in enumerate(rules) if rule.rule.when is not None}
        self._always = [number for number, found in needs.items() if found is None]
        self._indexes = tuple(_indexes({number: found for number, found in needs.items() if found is not None}))

    def evaluate(self, context: EvalContext) -> list[Hit] | None:
        """Return what the rules say, in their order; None where those without a condition alone have a say."""
        asked = set(self._always)
        for arg, indexes, members in self._indexes:
            try:
                if not arg.is_absent(context):
                    for index in indexes:
                        asked.update(index(context))
            except Exception:  # noqa: BLE001 - the rules themselves meet it again and tell of it
                asked |= members
        if not asked:
            return None
        hits = {number: hit for number in asked if (hit := _evaluate(self._rules[number], context)) is not None}
        if not hits:
            return None
        hits |= self.certain
        return [hits[number] for number in sorted(hits)]


def _evaluate(rule: CompiledRule, context: EvalContext) -> Hit | None:
    # Most rules say no, and asking their test alone first is the cheaper way to hear it.
    try:
        if not rule.test(context):
            return None
    except Exception:  # noqa: BLE001, S110 - `ask` meets it again and tells of it
        pass
    return rule.evaluate(context)


def _needs(when: When) -> list[_Need] | None:
    """Return conditions of which one must not be no if the whole is not to be; None where there is no such thing."""
    match when:
        case Condition():
            return _need(when)
        case Any_(any=parts):
            found = [_needs(part) for part in parts]
            return None if None in found else [need for needs in found for need in needs or ()]
        case All(all=parts):
            # Only the first will do: it is asked, and may break, where a later part says no.
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
    """Return each `arg` with its indexes and the rules that are in them."""
    groups: dict[str, dict[Build, list[Leaf]]] = {}
    for number, found in needs.items():
        for need in found:
            groups.setdefault(need.arg, {}).setdefault(need.build, []).append(Leaf(need.operand, number))
    for text, kinds in groups.items():
        arg = parse_arg(text)
        members = frozenset(leaf.rule for leaves in kinds.values() for leaf in leaves)
        yield arg, tuple(build(arg, leaves) for build, leaves in kinds.items()), members
