"""Say what is wrong in a policy file: once for each mistake, with its place and what to write instead. Pure, no I/O."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from proxy.policy.conditions import After, Condition, Earlier, Sql
from proxy.policy.detector_rules import Detector, Suppression
from proxy.policy.flow_rules import FlowRule, FlowTarget, FlowTest, LabelRule
from proxy.policy.limit_values import Sum
from proxy.policy.rule_parts import Annotations, TestCall
from proxy.policy.rules import (
    DenyRule,
    EgressPolicy,
    EgressRule,
    Limit,
    LimitTest,
    Pins,
    PolicyFile,
    PolicyTest,
    RedactRule,
    RuleTest,
    TwoPhaseRule,
)
from proxy.sandbox.profile import SandboxLimits, SandboxProfile, ToolProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic_core import ErrorDetails

type Steps = tuple[str | int, ...]

# What a field takes, by the error that pydantic reports for each of them.
_WANTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def explain_errors(nodes: Any, errors: Sequence[ErrorDetails]) -> list[tuple[tuple[int, int], str]]:
    """Return line, column and message of each mistake.

    A field that takes one value or a list of them makes pydantic report an error for each of the two.
    Only the one that goes deepest into the file is told, or one that names all that the field takes.
    """
    found: dict[Steps, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(_in_file(nodes, error), []).append(error)
    deepest = [steps for steps in found if not any(_is_below(other, steps) for other in found)]
    return [(locate(nodes, steps), _tell(steps, found[steps])) for steps in deepest]


def _is_below(steps: Steps, other: Steps) -> bool:
    return len(steps) > len(other) and steps[: len(other)] == other


def _in_file(nodes: Any, error: ErrorDetails) -> Steps:
    """Return the steps of an error that are in the file, and the field that is missing there."""
    node, steps = nodes, list[str | int]()
    for step in error["loc"]:
        inside = (isinstance(node, CommentedMap) and step in node) or (
            isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node)
        )
        if inside:
            node = node[step]
            steps.append(step)
    return (*steps, error["loc"][-1]) if error["type"] == "missing" else tuple(steps)


def _tell(steps: Steps, errors: list[ErrorDetails]) -> str:
    where = ".".join(map(str, steps))
    wanted = list(dict.fromkeys(_WANTED[e["type"]] for e in errors if e["type"] in _WANTED))
    exact = [error for error in errors if error["type"] not in _WANTED]
    if exact or len(wanted) < 2:
        said = _advice((exact or errors)[0])
    else:
        said = f"expects {', '.join(wanted[:-1])} or {wanted[-1]}, got {_shorten(errors[0].get('input'))}"
    return f"{where}: {said}" if where else said


def _shorten(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def locate(nodes: Any, steps: Iterable[str | int]) -> tuple[int, int]:
    """Return the line and column of the last of `steps` that is in the file; pydantic's own markers are not."""
    node = nodes
    line, column = 0, 0
    for step in steps:
        if isinstance(node, CommentedMap) and step in node:
            line, column = node.lc.key(step)
        elif isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
            line, column = node.lc.item(step)
        else:
            continue
        node = node[step]
    return line + 1, column + 1


def _advice(error: ErrorDetails) -> str:
    name = str(error["loc"][-1]) if error["loc"] else ""
    given = _shorten(error.get("input"))
    match error["type"]:
        case "extra_forbidden":
            return f"there is no field {name!r} here{_did_you_mean(name)}"
        case "missing":
            return f"{name!r} is missing; add it"
        case "literal_error":
            expected = error.get("ctx", {}).get("expected", "")
            return f"{given} is not allowed here; write {expected}{_guess(error.get('input'), expected)}"
        case "union_tag_invalid" | "union_tag_not_found":
            return _advise_action(error["input"])
        case "value_error":
            return f"{given}: {error['ctx']['error']}"
        case kind if kind in _WANTED:
            return f"expects {_WANTED[kind]}, got {given}"
        case _:
            return f"{error['msg']}, got {given}"


def _advise_action(rule: dict[str, Any]) -> str:
    expected = "'allow', 'deny', 'redact' or 'two_phase'"
    if "action" in rule:
        return f"action {rule['action']!r} is not allowed; write {expected}{_guess(rule['action'], expected)}"
    close = difflib.get_close_matches("action", [str(key) for key in rule], n=1)
    if close:
        return f"there is no field {close[0]!r} here; did you mean 'action'?"
    return f"'action' is missing; add it: {expected}"


_MODELS: Final = (
    PolicyFile,
    Annotations,
    DenyRule,
    RedactRule,
    TwoPhaseRule,
    Condition,
    Sql,
    RuleTest,
    PolicyTest,
    TestCall,
    EgressPolicy,
    EgressRule,
    Limit,
    LimitTest,
    Sum,
    Pins,
    After,
    Earlier,
    LabelRule,
    FlowRule,
    FlowTarget,
    FlowTest,
    SandboxProfile,
    SandboxLimits,
    ToolProfile,
)


def _did_you_mean(name: str) -> str:
    fields = (f.alias or key for model in (*_MODELS, Detector, Suppression) for key, f in model.model_fields.items())
    names = (*dict.fromkeys(fields), "all", "any", "not")
    # A name that exists is a slip only where it is nearly one of the file or of every rule, as `tool` is of `tools`.
    common = (*PolicyFile.model_fields, *DenyRule.model_fields)
    others = [other for other in (common if name in names else names) if other != name]
    close = difflib.get_close_matches(name.lower(), others, n=1, cutoff=0.85 if name in names else 0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    if name in names:
        return "; it belongs elsewhere, see docs/policy.md"
    return "; see docs/policy-reference.md for the fields"


def _guess(given: Any, expected: str) -> str:
    options = [part for part in expected.split("'") if part.strip() not in ("", ",", "or")]
    close = difflib.get_close_matches(str(given).lower(), options, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
