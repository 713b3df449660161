"""Writes docs/policy-reference.md from the models that read policy files: `python scripts/policy_reference.py`.

`--check` writes nothing, and fails where the page is not what the models say.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.policy.rules import PolicyFile

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parent.parent / "docs" / "policy-reference.md"
PREAMBLE = """\
# Policy reference

Every field of a policy file. [policy.md](policy.md) explains how they work together, with examples.
`interlock policy schema` prints the same as JSON Schema, for editors. Any other field is an error;
`interlock policy check` reports it with file, line and column.

This page is made by `python scripts/policy_reference.py`; edit the models instead.
"""
# Heading of each model, in the order in which one comes upon them.
TITLES = {
    "PolicyFile": "Policy file",
    "_Rule": "Every rule",
    "AllowRule": "Rule: allow",
    "DenyRule": "Rule: deny",
    "RedactRule": "Rule: redact",
    "TwoPhaseRule": "Rule: two_phase",
    "ExternalRule": "Rule: external",
    "ClaimMatch": "Agents by a claim",
    "ObservedRule": "Rule: on observed",
    "ActTest": "Test of a rule on observed",
    "TestAct": "Act of a test",
    "Annotations": "Annotations",
    "ByPeople": "Approval by people",
    "Weights": "Weights",
    "Condition": "Condition",
    "Bounds": "Bounds",
    "Sql": "SQL",
    "All": "Condition: all",
    "Any_": "Condition: any",
    "Not": "Condition: not",
    "After": "Condition: after",
    "Earlier": "What came before",
    "RuleTest": "Rule test",
    "PolicyTest": "Policy test",
    "TestCall": "Call of a test",
    "Limit": "Limit",
    "Sum": "Sum of an argument",
    "LimitTest": "Limit test",
    "EgressPolicy": "Egress",
    "EgressRule": "Egress rule",
    "EgressTest": "Egress test",
    "EgressCall": "Request of an egress test",
    "Pins": "Pins",
    "IncomingRule": "Incoming rule",
    "IncomingTest": "Test of an incoming rule",
    "Detector": "Detector",
    "Suppression": "Suppression",
    "LabelRule": "Label",
    "FlowRule": "Flow",
    "FlowTarget": "Where a flow ends",
    "Target": "Exceptions of a flow",
    "FlowTest": "Flow test",
    "FlowSource": "Source of a flow test",
    "FlowRequest": "Request of a flow test",
    "SandboxProfile": "Sandbox profile",
    "SandboxLimits": "Limits of a sandbox",
    "ToolProfile": "Sandbox of one tool",
}
RULES = ("AllowRule", "DenyRule", "RedactRule", "TwoPhaseRule")
EVERY = {"description": "The fields of every kind of rule. The `action` adds more."}
WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}

type Schema = dict[str, Any]


class Reference:
    """One page, of one JSON Schema."""

    def __init__(self, schema: Schema) -> None:
        models = schema["$defs"]
        shared = dict.fromkeys(models[RULES[0]]["properties"])  # one that adds nothing but its action
        own = {kind: {**models[kind], "properties": _but(models[kind]["properties"], shared)} for kind in RULES}
        every = {**models[RULES[0]], "properties": _only(models[RULES[0]]["properties"], shared), **EVERY}
        self._models: dict[str, Schema] = {"PolicyFile": schema, **models, **own, "_Rule": every}

    def text(self) -> str:
        """Return the whole page. Raises KeyError for a model that has no title here."""
        described = {name: each for name, each in self._models.items() if "properties" in each}
        unknown = described.keys() ^ TITLES.keys()
        if unknown:
            raise KeyError(f"titles and models differ in {sorted(unknown)}")
        return "\n".join([PREAMBLE, *("\n".join(self._section(name, described[name])) for name in TITLES)])

    def _section(self, name: str, model: Schema) -> Iterator[str]:
        yield f"## {TITLES[name]}\n"
        yield f"{' '.join(model.get('description', '').split())}\n"
        yield "| field | takes | default | meaning |"
        yield "|---|---|---|---|"
        required = model.get("required", ())
        for field, each in model["properties"].items():
            default = "required" if field in required else _spell(each.get("default"))
            yield f"| `{field}` | {self._type(each)} | {default} | {_cell(each.get('description', ''))} |"
        yield ""

    def _type(self, schema: Schema) -> str:
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                parts = [self._type(part) for part in schema[key] if part != {"type": "null"}]
                return _either(list(dict.fromkeys(parts)))
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return _either([f"`{value}`" for value in schema["enum"]])
        if schema.get("type") == "array":
            return f"list of {self._type(schema['items'])}"
        if schema.get("type") == "object":
            return "mapping"
        return WORDS[schema["type"]] + _bounds(schema) if "type" in schema else "any value"

    def _named(self, name: str) -> str:
        model = self._models[name]
        if "properties" not in model:
            return self._type(model)
        anchor = TITLES[name].lower().replace(":", "").replace(" ", "-")
        return f"[{TITLES[name].lower()}](#{anchor})"


def _only(fields: Schema, names: dict[str, None]) -> Schema:
    return {name: each for name, each in fields.items() if name in names and name != "action"}


def _but(fields: Schema, names: dict[str, None]) -> Schema:
    return {name: each for name, each in fields.items() if name not in names or name == "action"}


def _either(parts: list[str]) -> str:
    flat = sorted(parts, key=lambda part: part.startswith("list of "))
    return flat[0] if len(flat) == 1 else f"{', '.join(flat[:-1])} or {flat[-1]}"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low:g} to {high:,.0f}"
    return f", at least {low:g}" if low is not None else ""


def _spell(default: Any) -> str:
    if default is None or default in ("", [], {}):
        return "none"
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    made = Reference(PolicyFile.model_json_schema(by_alias=True)).text()
    if "--check" not in arguments:
        PAGE.write_text(made)
        return 0
    if PAGE.exists() and PAGE.read_text() == made:
        return 0
    print(f"{PAGE} is not what the models say; run python scripts/policy_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
