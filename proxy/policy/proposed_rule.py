"""Checks a rule that an agent proposes, and writes it as a policy file of its own. Pure.

What an agent sends is hostile: it is bounded before anything reads it, and it is taken only as the loader takes a file,
with tests that pass.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import PolicyError
from proxy.policy.load import PolicyFileError, load_text
from proxy.policy.policy_writer import write_yaml
from proxy.policy.rule_tests import coverage, run_tests
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Collection

    from proxy.core.interfaces import KnownDetectors
    from proxy.policy.rules import Rule

MAX_RULE: Final = 16 << 10  # bytes of its JSON
MAX_DEPTH: Final = 20
MAX_TESTS: Final = 20
MAX_EXPRESSIONS: Final = 16  # a few letters may take 30 ms and 8 MiB to compile
MAX_PROBLEMS: Final = 5
MAX_SAID: Final = 300
ACTIONS: Final = ("allow", "deny", "two_phase", "redact")
OPENING: Final = ("allow", "two_phase")
NAME: Final = "proposal"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule that loads and whose tests pass."""

    rule_id: str
    text: str
    tests: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def check_rule(
    rule: object, agent: str, taken: Collection[str] = (), book: KnownDetectors | None = None
) -> CheckedRule:
    """Return a proposed rule as a policy file. Raises PolicyError with what to write instead."""
    values = _bounded(rule)
    text = write_yaml({"version": 1, "rules": [values]})
    try:
        content = load_text(text, NAME, book).content
    except PolicyFileError as error:
        said = [one.message[:MAX_SAID] for one in error.problems[:MAX_PROBLEMS]]
        raise PolicyError("; ".join(said)) from None
    if len(content.call_rules) != 1 or content.call_rules[0].action not in ACTIONS:
        raise PolicyError(f"propose one rule on calls, with an action of {', '.join(ACTIONS)}")
    made = content.call_rules[0]
    if not _ID.fullmatch(made.id) or made.id in taken:
        raise PolicyError("id must be a new name of letters, digits, dots, dashes and underscores, at most 80 long")
    _check_agents(made, agent)
    _check_tests(made)
    return CheckedRule(made.id, text, len(made.tests))


def _bounded(rule: object) -> dict[str, Any]:
    if not isinstance(rule, dict):
        raise PolicyError("rule must be an object, as one rule of a policy file is")
    if _depth(rule) > MAX_DEPTH:
        raise PolicyError(f"the rule is nested more than {MAX_DEPTH} deep")
    try:
        size = len(json.dumps(rule, allow_nan=False, ensure_ascii=False).encode())
    except ValueError:
        raise PolicyError("the rule has text or numbers that no file can hold") from None
    if size > MAX_RULE:
        raise PolicyError(f"the rule has {size} bytes; at most {MAX_RULE} are taken")
    if (found := _expressions(rule)) > MAX_EXPRESSIONS:
        raise PolicyError(f"the rule has {found} regular expressions in matches; at most {MAX_EXPRESSIONS} are taken")
    return rule


def _expressions(value: Any) -> int:
    """Return how many texts there are under `matches`, wherever it stands."""
    asked = value.get("matches") if isinstance(value, dict) else None
    own = len(asked) if isinstance(asked, list) else int(asked is not None)
    return own + sum(map(_expressions, _inside(value)))


def _depth(value: Any) -> int:
    """Return how deep a value is nested, or MAX_DEPTH + 1 where it is deeper."""
    level: list[Any] = [value]
    for depth in range(MAX_DEPTH + 1):
        inside = [one for outer in level for one in _inside(outer)]
        if not inside:
            return depth
        level = inside
    return MAX_DEPTH + 1


def _inside(value: Any) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _check_agents(rule: Rule, agent: str) -> None:
    # What opens something is for whoever asks for it, and for nobody else. A two_phase rule opens what is denied by
    # default: without people, the agent commits by itself.
    if rule.action not in OPENING:
        return
    itself, lax = (re.sub(r"([*?\[])", r"[\1]", name) for name in (agent, fold(agent).strip()))
    named = {str(one) for one in rule.agents or ()}
    if itself not in named or not named <= {itself, lax}:
        words = f"write agents: [{json.dumps(agent)}], in its tests too"
        raise PolicyError(f"a rule with the action {rule.action} must be for you alone: {words}")


def _check_tests(rule: Rule) -> None:
    if len(rule.tests) > MAX_TESTS:
        raise PolicyError(f"the rule has {len(rule.tests)} tests; at most {MAX_TESTS} are taken")
    results = run_tests([rule])
    for result in results:
        if not result.passed:
            raise PolicyError(f"test {result.number} expects {result.expected}, and the rule gives {result.got}")
    if not coverage([rule], results)[0].complete:
        raise PolicyError(f"tests: needs a call that the rule meets (expect: {rule.action}) and one of no_match")
