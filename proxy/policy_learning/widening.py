"""Whether a policy lets something through that another one stops. Pure.

The answer is "yes" with a call that the real engine decides so; "no" where no answers of the conditions, in any way
that they could go together, lead to it; and "unknown" with the reasons otherwise. It is never "no" by a guess: what
conditions may answer is always taken too wide, never too narrow.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import TypeAdapter

from proxy.core.model import Call, Decision, Hints, Outcome
from proxy.policy.agents import ClaimMatch, entries
from proxy.policy.conditions import When, earlier_in
from proxy.policy.decide import SESSION_METHODS
from proxy.policy.eval_context import EvalContext
from proxy.policy.operators import compile_when
from proxy.policy.past import Past
from proxy.policy.rules import AllowRule, DenyRule, ExternalRule, RedactRule, TwoPhaseRule
from proxy.policy.views import MAY, NO, YES
from proxy.policy_learning.abstract_bits import ALL_ANSWERS, Atom, atoms_in, possible
from proxy.policy_learning.atom_order import excluded
from proxy.policy_learning.name_classes import method_classes, name_classes, server_classes
from proxy.policy_learning.sample_values import place_value, sample_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.policy.compiled_rule import CompiledRule
    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.rules import Rule
    from proxy.policy.views import Test

# How much a policy lets through: nothing, what people approve, what an agent may commit by itself, the call at once.
NOTHING, BY_PEOPLE, BY_AGENT, AT_ONCE = range(4)
_RANKS: Final = {Outcome.DENY: NOTHING, Outcome.EXTERNAL: BY_PEOPLE, Outcome.ALLOW: AT_ONCE}
MAX_CELLS: Final = 20_000
MAX_STEPS: Final = 20_000  # of the search for one kind of call
MAX_TRIES: Final = 200
_WHEN: Final = TypeAdapter[Any](When)


@dataclass(slots=True)
class Verdict:
    """The answer; for a yes the call, and what each policy makes of it."""

    answer: Literal["yes", "no", "unknown"] = "no"
    witness: Call | None = None
    was: str = ""
    now: str = ""
    why: list[str] = field(default_factory=list)
    kinds: int = 0  # of calls that were looked at


def rank(decision: Decision) -> int:
    """Return how much a decision lets through."""
    if decision.outcome is Outcome.TWO_PHASE:
        return BY_AGENT if decision.terms is not None and decision.terms.approval == "auto" else BY_PEOPLE
    return _RANKS[decision.outcome]


def find_widening(old: CompiledPolicy, new: CompiledPolicy, seed: int = 0) -> Verdict:
    """Return whether `new` lets through a call that `old` stops, or asks people about."""
    if _only_narrows(old, new):
        return Verdict("no")
    search = _Search(old, new, random.Random(seed))  # noqa: S311  nothing secret: the same seed looks the same way
    if any(search.decide(call) for call in search.tested_calls()):
        return search.verdict
    for cell in search.cells():
        search.verdict.kinds += 1
        if search.look_at(cell):
            return search.verdict
    if search.verdict.why:
        search.verdict.answer = "unknown"
    return search.verdict


def _only_narrows(old: CompiledPolicy, new: CompiledPolicy) -> bool:
    """Return whether `new` differs by rules alone that can let nothing through, and lacks none that stops something."""
    if old.default != new.default:
        return False
    before, after = (_by_id(policy) for policy in (old, new))
    opening: tuple[type, ...] = (TwoPhaseRule, ExternalRule, AllowRule) if old.default == "deny" else ()
    # A rule more that asks changes how the others ask.
    opening += (TwoPhaseRule,) if any(isinstance(rule, TwoPhaseRule) for rule in before.values()) else ()
    added = (rule for name, rule in after.items() if before.get(name) != rule)
    gone = (rule for name, rule in before.items() if after.get(name) != rule)
    return not any(isinstance(rule, opening) for rule in added) and all(isinstance(rule, AllowRule) for rule in gone)


def _by_id(policy: CompiledPolicy) -> dict[str, Rule]:
    return {one.rule.id: one.rule for one in policy.compiled if _counts(one)}


class _Cell:
    """A kind of calls: by its names alone, and the rules of both policies that apply to it."""

    def __init__(self, call: Call, old: Sequence[CompiledRule], new: Sequence[CompiledRule]) -> None:
        self.call, self.old, self.new = call, old, new
        atoms = [atom for rule in (*old, *new) for atom in atoms_in(rule.rule.when)]
        # What many rules ask is settled first: it leaves the least open.
        self.atoms = sorted(set(atoms), key=lambda atom: (-atoms.count(atom), atom))
        self.by_arg: dict[str, list[Atom]] = {}
        for atom in self.atoms:
            self.by_arg.setdefault(atom[0], []).append(atom)


class _Search:
    def __init__(self, old: CompiledPolicy, new: CompiledPolicy, rng: random.Random) -> None:
        self._old, self._new, self._random = old, new, rng
        self._tests: dict[Atom, Test] = {}
        self.verdict = Verdict()

    def _unknown(self, why: str) -> None:
        if why not in self.verdict.why:
            self.verdict.why.append(why)

    def cells(self) -> Iterator[_Cell]:
        """Yield each kind of call once: those that the same rules of both policies apply to."""
        seen: set[tuple[Any, ...]] = set()
        for call in itertools.chain(self._likely_calls(), itertools.islice(self._calls(), MAX_CELLS)):
            old, new = (_live(policy, call) for policy in (self._old, self._new))
            key = (tuple(map(id, old)), tuple(map(id, new)), call.method in SESSION_METHODS)
            if key not in seen:
                seen.add(key)
                yield _Cell(call, old, new)

    def tested_calls(self) -> Iterator[Call]:
        """Yield the calls in tests of rules that only one policy has: people wrote down what matters there."""
        for rule in self._differing():
            yield from (replace(test.call.as_call(), history=Past()) for test in rule.tests)

    def _likely_calls(self) -> Iterator[Call]:
        """Yield calls by the names in rules that only one policy has: in a large policy they are a few of very many."""
        for rule in self._differing():
            yield from itertools.islice(_calls_of(rule), MAX_TRIES)

    def _differing(self) -> Iterator[Rule]:
        before, after = _by_id(self._old), _by_id(self._new)
        yield from (rule for name, rule in after.items() if before.get(name) != rule)
        yield from (rule for name, rule in before.items() if after.get(name) != rule)

    def _calls(self) -> Iterator[Call]:
        rules = [one.rule for policy in (self._old, self._new) for one in policy.compiled if _counts(one)]
        named = [entry for rule in rules for entry in entries(rule.agents)]
        if any(isinstance(one, ClaimMatch) for one in named):
            self._unknown("rules ask for claims of agents")
        agents = name_classes(one for one in named if isinstance(one, str))
        tools = name_classes(one for rule in rules for one in rule.tools or ())
        servers = server_classes(one for rule in rules for one in rule.servers or ())
        methods = method_classes(one for rule in rules for one in rule.methods or ())
        for what, found in (("agents", agents), ("tools", tools), ("servers", servers), ("methods", methods)):
            if not found.complete:
                self._unknown(f"globs over {what} are only sampled")
        hints = [Hints()] if not any(rule.annotations for rule in rules) else list(_all_hints())
        total = len(agents.names) * len(tools.names) * len(servers.names) * len(methods.names) * len(hints)
        if total > MAX_CELLS:
            self._unknown(f"more than {MAX_CELLS} combinations of names")
        for method, server, agent, hint, tool in itertools.product(
            methods.names, servers.names, agents.names, hints, tools.names
        ):
            yield Call(method, server, agent, tool, {}, hint, history=Past())

    def look_at(self, cell: _Cell) -> bool:
        """Look for a call of this kind that is let through; return whether one was found."""
        if _asks_otherwise(cell):
            self._unknown("two_phase rules differ in how they ask")
        if not self._may_widen(cell, {}):
            return False
        tables = {arg: self._table(arg, atoms) for arg, atoms in cell.by_arg.items()}
        for _ in range(MAX_TRIES if tables else 1):
            if self._try(cell, {arg: self._random.choice(list(table.values())) for arg, table in tables.items()}):
                return True
        steps = 0
        for answers in self._assignments(cell, {}, 0):
            steps += 1
            if steps > MAX_STEPS:
                self._unknown("too many conditions together")
                return False
            if answers is None:
                continue
            values = {arg: tables[arg].get(tuple(answers[a] for a in atoms)) for arg, atoms in cell.by_arg.items()}
            if None not in values.values() and self._try(cell, values):
                return True
            self._unknown(_about(cell))
            if steps > MAX_TRIES:
                return False
        return False

    def _assignments(self, cell: _Cell, known: dict[Atom, int], at: int) -> Iterator[dict[Atom, int] | None]:
        """Yield answers of all conditions with which the new policy may let more through; None for each step."""
        yield None
        if not self._may_widen(cell, known):
            return
        if at == len(cell.atoms):
            yield known
            return
        atom = cell.atoms[at]
        for bits in ALL_ANSWERS:
            if not any(excluded(atom, other, (bits, answer)) for other, answer in known.items() if other[0] == atom[0]):
                yield from self._assignments(cell, {**known, atom: bits}, at + 1)

    def _may_widen(self, cell: _Cell, known: dict[Atom, int]) -> bool:
        return _most(self._new, cell.new, cell.call, known) > _least(self._old, cell.old, cell.call, known)

    def _table(self, arg: str, atoms: Sequence[Atom]) -> dict[tuple[int, ...], tuple[str, Any]]:
        """Return values by the answers that the operators on one argument give for them."""
        found: dict[tuple[int, ...], tuple[str, Any]] = {}
        for value in sample_values(atoms):
            arguments: dict[str, Any] = {}
            place_value(arguments, arg, value)
            bits = tuple(self._answer(atom, arguments) for atom in atoms)
            found.setdefault(bits, (arg, value))
        return found

    def _answer(self, atom: Atom, arguments: dict[str, Any]) -> int:
        if atom not in self._tests:
            self._tests[atom] = compile_when(_WHEN.validate_python({"arg": atom[0], atom[1]: json.loads(atom[2])}))
        try:
            return self._tests[atom](EvalContext(arguments, history=Past()))
        except Exception:  # noqa: BLE001  what raises makes its rule refuse; it is no way to a witness
            return MAY

    def _try(self, cell: _Cell, values: dict[str, tuple[str, Any] | None]) -> bool:
        """Build a call and let both policies decide it; return whether the new one lets more through."""
        arguments: dict[str, Any] = {}
        for found in values.values():
            if found is not None:
                place_value(arguments, *found)
        base = cell.call
        return self.decide(Call(base.method, base.server, base.agent, base.tool, arguments, base.hints, history=Past()))

    def decide(self, call: Call) -> bool:
        """Let both policies decide a call; return whether the new one lets more through."""
        was, now = self._old.decide(call), self._new.decide(call)
        if rank(now) <= rank(was):
            return False
        self.verdict.answer, self.verdict.witness = "yes", call
        self.verdict.was = f"{was.outcome} ({was.rule or was.reason})"
        self.verdict.now = f"{now.outcome} ({now.rule or now.reason})"
        return True


def _calls_of(rule: Rule) -> Iterator[Call]:
    """Yield a call for each way to choose names that a rule has: as they stand there first."""
    agents = [one for one in entries(rule.agents) if isinstance(one, str)]
    given = (rule.methods or ["tools/call"], rule.servers or (), agents, rule.tools or ())
    classes = [name_classes(given[0]), server_classes(given[1]), *map(name_classes, given[2:])]
    written = [
        [one for one in found.names if one in names] or found.names for names, found in zip(given, classes, strict=True)
    ]
    every = [found.names for found in classes]
    for method, server, agent, tool in itertools.chain(itertools.product(*written), itertools.product(*every)):
        yield Call(method, server, agent, tool, {}, Hints(), history=Past())


def _counts(rule: CompiledRule) -> bool:
    return not rule.shadow and not isinstance(rule.rule, RedactRule)


def _live(policy: CompiledPolicy, call: Call) -> list[CompiledRule]:
    return [rule for rule in policy.rules_for(call) if _counts(rule)]


def _all_hints() -> Iterator[Hints]:
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    for values in itertools.product((False, True), repeat=4):
        yield Hints.read(dict(zip(names, values, strict=True)))


def _asks_otherwise(cell: _Cell) -> bool:
    """Return whether calls that both policies ask about could be asked about less strictly by the new one."""
    old, new = ([one.rule for one in rules if isinstance(one.rule, TwoPhaseRule)] for rules in (cell.old, cell.new))
    if not old or not new:
        return False
    before, after = ({_way_to_ask(rule) for rule in rules} for rules in (old, new))
    return not before <= after or {rule.how for rule in old} != {rule.how for rule in new}


def _way_to_ask(rule: TwoPhaseRule) -> str:
    aside = {"id", "description", "severity", "tests", "agents", "servers", "tools", "methods", "annotations"}
    return rule.model_dump_json(exclude=aside)


def _about(cell: _Cell) -> str:
    rules = [rule.rule for rule in (*cell.old, *cell.new)]
    if any(isinstance(rule, ExternalRule) for rule in rules):
        return "other services decide"
    if any(next(earlier_in(rule.when), None) for rule in rules):
        return "rules ask what came before"
    asked = sorted({f"{atom[1]} on {atom[0]}" for atom in cell.atoms})
    return f"no value was found that decides between {', '.join(asked[:6])}"


def _most(policy: CompiledPolicy, rules: Sequence[CompiledRule], call: Call, known: dict[Atom, int]) -> int:
    """Return the most that a policy may let through, given some answers."""
    answers = [(rule.rule, possible(rule.rule.when, known)) for rule in rules]
    if any(isinstance(rule, DenyRule) and NO not in bits for rule, bits in answers):
        return NOTHING
    two = [(rule, bits) for rule, bits in answers if isinstance(rule, TwoPhaseRule)]
    if sure := [rule for rule, bits in two if NO not in bits]:
        return BY_PEOPLE if any(rule.by_people for rule in sure) else BY_AGENT
    lets = any(isinstance(rule, AllowRule) and YES in bits for rule, bits in answers)
    lets = lets or any(isinstance(rule, ExternalRule) and bits != {NO} for rule, bits in answers)
    if lets or policy.default == "allow" or call.method in SESSION_METHODS:
        return AT_ONCE
    may = [rule for rule, bits in two if bits != {NO}]
    return NOTHING if not may else BY_PEOPLE if all(rule.by_people for rule in may) else BY_AGENT


def _least(policy: CompiledPolicy, rules: Sequence[CompiledRule], call: Call, known: dict[Atom, int]) -> int:
    """Return the least that a policy may let through, given some answers."""
    answers = [(rule.rule, possible(rule.rule.when, known)) for rule in rules]
    if any(isinstance(rule, DenyRule | ExternalRule) and bits != {NO} for rule, bits in answers):
        return NOTHING
    two = [(rule, bits) for rule, bits in answers if isinstance(rule, TwoPhaseRule)]
    # May can be a value that cannot be judged, and then a two-phase rule refuses.
    if any(MAY in bits for _, bits in two):
        return NOTHING
    sure = any(isinstance(rule, AllowRule) and bits == {YES} for rule, bits in answers)
    open_ = policy.default == "allow" or call.method in SESSION_METHODS or sure
    if not open_ and not any(bits == {YES} for _, bits in two):
        return NOTHING
    may = [rule for rule, bits in two if bits != {NO}]
    return AT_ONCE if not may else BY_PEOPLE if any(rule.by_people for rule in may) else BY_AGENT
