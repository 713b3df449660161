"""A rule made from a recorded call: a beginning for whoever writes one, with tests that pass. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from proxy.policy.policy_writer import write_yaml
from proxy.policy.rule_tests import run_tests
from proxy.policy.rules import PolicyFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

type Action = Literal["deny", "allow", "two_phase"]

ACTIONS: Final[tuple[Action, ...]] = ("deny", "allow", "two_phase")
MAX_CONDITIONS: Final = 4
MAX_TEXT: Final = 200
MAX_ARGUMENTS: Final = 4000  # characters: a longer test is left for whoever wants it
OTHER: Final = "some_other_tool"
_MASK: Final = re.compile(r"\[(?:secret|pii|custom):[^\[\]]+\]")
_URL: Final = re.compile(r"(?i)[a-z][a-z0-9+.-]*://([A-Za-z0-9.-]+)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def suggested_action(call: Mapping[str, Any]) -> Action:
    """Return what somebody who opens the call most likely wants. An allow helps only where no rule denies."""
    return "allow" if call.get("reason") == "default_deny" else "deny"


def rule_from_call(call: Mapping[str, Any], action: Action) -> str:
    """Return a policy file with one rule that fits the call, as YAML. Its tests pass."""
    for conditions in (list(_conditions(call.get("arguments"))), []):
        policy = {"version": 1, "rules": [_rule(call, action, conditions)]}
        if _tests_pass(policy):
            return write_yaml(policy)
    # A name that no rule can hold, such as an empty one: everything but the tests.
    return write_yaml({"version": 1, "rules": [_rule(call, action, []) | {"tests": []}]})


def _rule(call: Mapping[str, Any], action: Action, conditions: list[dict[str, Any]]) -> dict[str, Any]:
    tool, arguments = str(call.get("tool") or "*"), call.get("arguments")
    named = re.sub(r"[^A-Za-z0-9._-]+", "-", tool).strip("-._")[:60] or "call"
    rule: dict[str, Any] = {
        "id": f"{action.replace('_', '-')}-{named}",
        "description": f"Written from call {call.get('call_id') or call.get('event_id')}",
        "action": action,
        "tools": [_as_glob(tool)],
    }
    if conditions:
        rule["when"] = {"all": conditions}
    test: dict[str, Any] = {"tool": tool}
    if isinstance(arguments, dict) and len(json.dumps(arguments)) <= MAX_ARGUMENTS:
        test["arguments"] = arguments
    rule["tests"] = [{"call": test, "expect": action}, {"call": {"tool": OTHER}, "expect": "no_match"}]
    return rule


def _as_glob(tool: str) -> str:
    # A name may hold what a glob takes for a sign.
    return re.sub(r"([*?\[])", r"[\1]", tool) if tool != "*" else tool


def _conditions(arguments: Any) -> Iterator[dict[str, Any]]:
    """Yield a condition for each of the first plain arguments; masked ones say nothing of the real value."""
    found = 0
    for name, value in arguments.items() if isinstance(arguments, dict) else ():
        condition = _condition(value) if _NAME.fullmatch(name) else None
        if condition is not None and found < MAX_CONDITIONS:
            found += 1
            yield {"arg": name, **condition}


def _condition(value: Any) -> dict[str, Any] | None:
    if isinstance(value, bool | int | float):
        return {"equals": value}
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT or _MASK.search(value):
        return None
    if (url := _URL.match(value)) is not None:
        return {"host_in": [url[1]]}
    if value.startswith("/"):
        return {"path_under": [posixpath.dirname(posixpath.normpath(value))]}
    return {"equals": value}


def _tests_pass(policy: dict[str, Any]) -> bool:
    try:
        rules = PolicyFile.model_validate(policy).call_rules
        return all(result.passed for result in run_tests(rules))
    except (ValidationError, ValueError):
        return False
