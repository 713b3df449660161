"""What conditions may answer when the arguments are not known: a set of bits for each, never too small. Pure.

An answer is NO, MAY or YES (`proxy.policy.views`). A value that cannot be judged answers MAY at first, and no allow
matches by it, so MAY stands for that as well.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.conditions import After, All, Any_, Condition, Not, When
from proxy.policy.views import MAY, NO, YES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# One operator on one argument, as text: the same atom has one answer, whichever rule asks.
type Atom = tuple[str, str, str]
type Answers = Mapping[Atom, int]

ALL_ANSWERS: Final = (NO, MAY, YES)
_NEGATED: Final = {NO: YES, MAY: MAY, YES: NO}


def atom_of(arg: str, operator: str, operand: Any) -> Atom:
    plain = operand.model_dump(mode="json", exclude_none=True) if hasattr(operand, "model_dump") else operand
    return arg, operator, json.dumps(plain, sort_keys=True)


def atoms_in(when: When | None) -> Iterator[Atom]:
    """Return every operator of a condition tree."""
    match when:
        case All(all=parts) | Any_(any=parts):
            for part in parts:
                yield from atoms_in(part)
        case Not(not_=part):
            yield from atoms_in(part)
        case Condition():
            yield from (atom_of(when.arg, name, operand) for name, operand in when.operators().items())


def possible(when: When | None, known: Answers) -> frozenset[int]:
    """Return what a tree may answer, given the answers of some atoms; the others may answer anything."""
    match when:
        case None:
            return frozenset({YES})
        case All(all=parts):
            return _combined([possible(part, known) for part in parts], YES, conjoin=True)
        case Any_(any=parts):
            return _combined([possible(part, known) for part in parts], NO, conjoin=False)
        case Not(not_=part):
            return frozenset(_NEGATED[bits] for bits in possible(part, known))
        case After():
            return frozenset(ALL_ANSWERS)
        case Condition():
            atoms = [known.get(atom) for atom in atoms_in(when)]
            sets = [frozenset(ALL_ANSWERS) if bits is None else frozenset({bits}) for bits in atoms]
            return _combined(sets, YES, conjoin=True)


def _combined(sets: list[frozenset[int]], start: int, *, conjoin: bool) -> frozenset[int]:
    found = frozenset({start})
    for one in sets:
        found = frozenset(a & b if conjoin else a | b for a in found for b in one)
    return found
