"""What services are asked, and how their answers are read: OPA's data API and Cedar's is_authorized. Pure, no I/O."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proxy.core.external import Ask, Asked
    from proxy.core.model import JsonObject

DENIED: Final = "external_denied"
ODD: Final = "external_answer"
MAX_SAID: Final = 300
_PLAIN: Final = re.compile(r"[^A-Za-z0-9 ._:/@+-]")
_WHOLE: Final = 1 << 63

type Read = tuple[str | None, str]
"""The reason code of a refusal, or None for a yes; and what the service said."""


def question(ask: Ask, asked: Asked) -> JsonObject:
    """Return all that a service is told of a call. It names no session and no credentials."""
    call, principal = asked.call, asked.context.principal
    told: JsonObject = {
        "agent": call.agent,
        "authenticated": principal.authenticated,
        "identity": principal.identity.data() if principal.identity is not None else None,
        "server": call.server,
        "transport": asked.context.transport,
        "method": call.method,
        "tool": call.tool,
        "annotations": call.hints.data(),
        "rule": ask.rule,
    }
    if ask.arguments != "none":
        told["arguments"] = asked.masked if ask.arguments == "masked" else call.arguments
    return told


def opa_body(told: JsonObject) -> JsonObject:
    """Return the body of a request to OPA's data API."""
    return {"input": told}


def read_opa(answer: Any) -> Read:
    """Read OPA's answer: `result` is true, or has `allow: true`. Without a result the rule is undefined: no."""
    if not isinstance(answer, dict):
        return ODD, "the answer is no JSON object"
    if "result" not in answer:
        return DENIED, "the decision is undefined"
    result = answer["result"]
    said = ""
    if isinstance(result, dict):
        said, result = _said(result.get("reason")), result.get("allow")
    if result is True:
        return None, said
    return (DENIED, said) if result is False else (ODD, "the result is neither true nor false, nor has it `allow`")


def cedar_body(told: JsonObject) -> JsonObject:
    """Return the body of a request to cedar-agent: entities by their names, all else as the context."""
    tool = told["tool"]
    resource = entity("Server", told["server"]) if tool is None else entity("Tool", f"{told['server']}/{tool}")
    context = {name: value for name, value in told.items() if name not in ("agent", "rule")}
    return {
        "principal": entity("Agent", told["agent"]),
        "action": entity("Action", told["method"]),
        "resource": resource,
        "context": as_cedar(context),
    }


def read_cedar(answer: Any) -> Read:
    """Read the answer of Cedar, by cedar-agent's and by Verified Permissions' words."""
    if not isinstance(answer, dict):
        return ODD, "the answer is no JSON object"
    decision, diagnostics = answer.get("decision"), answer.get("diagnostics")
    found = diagnostics if isinstance(diagnostics, dict) else answer
    said = _said(
        ", ".join(str(one) for one in found.get("reason") or ()) if isinstance(found.get("reason"), list) else ""
    )
    if decision in ("Deny", "DENY"):
        return DENIED, said
    if decision not in ("Allow", "ALLOW"):
        return ODD, "the decision is neither Allow nor Deny"
    # Cedar leaves out a policy that it cannot evaluate, and that may have been the one that forbids.
    return (ODD, "some policies could not be evaluated") if found.get("errors") else (None, said)


def entity(kind: str, name: str) -> str:
    """Return the text of an entity. Agents and servers choose names, so whatever is not plain is escaped."""
    return f'{kind}::"{_PLAIN.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", name)}"'


def as_cedar(value: Any) -> Any:
    """Return a JSON value that Cedar takes: it has no null, and no numbers but whole ones of 64 bits."""
    match value:
        case dict():
            return {name: as_cedar(one) for name, one in value.items() if one is not None}
        case list():
            return [as_cedar(one) for one in value if one is not None]
        case bool() | str():
            return value
        case int() if -_WHOLE <= value < _WHOLE:
            return value
        case _:
            return json.dumps(value)


def _said(value: Any) -> str:
    """Return what a service says to people, in one short line."""
    if not isinstance(value, str):
        return ""
    line = " ".join("".join(char if char.isprintable() else " " for char in value).split())
    return line if len(line) <= MAX_SAID else line[:MAX_SAID] + "…"
