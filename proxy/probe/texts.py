"""Judges what a server says: its tools' definitions, and their results. Pure.

A result goes to the model. A secret in it has left the machine as surely as one on the wire, and an order in it
may be followed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.gate.tool_descriptions import strings
from proxy.injection import Confidence, Passage, find_passages
from proxy.probe.declared_scope import is_under
from proxy.probe.findings import MAX_EVIDENCE, ProbeFinding, from_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.canary import Canary
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.findings import ProbeCall
    from proxy.probe.observation_facts import RunContext
    from proxy.probe.rulebook import Rulebook

MAX_TEXT = 1 << 20
MAX_QUOTED = 160
CONFIDENCE: Confidence = "likely"
# What a definition is full of: what to do with the tool, and before which others to use it.
_MANUAL = frozenset({"order", "claims-priority"})
# And what it warns of: "do not include passwords or API keys in your query".
_WARNING = _MANUAL | {"asks-secret", "sends-out"}
_WARNS = re.compile(
    r"(?i)\b(?:do not|don't|never|must not|should not|avoid|without)\s+(?:\w+\s+){0,2}"
    r"(?:includ|send|put|pass|provid|enter|shar|paste|add|us|stor|log)\w*\b"
)
# A definition says what a tool does. One that speaks in a role's name, hands out trust or switches safety off speaks
# to the model; each of these alone occurs in honest ones, two kinds together do not.
_CLAIMS = (
    re.compile(
        r"(?im)^\s*\[?\s*"
        r"(?:act as|system|assistant|(?:[a-z]+ ){0,3}(?:directive|override|instructions?|protocol))\s*\]?\s*:"
    ),
    re.compile(
        r"(?i)\b(?:ignor|bypass|skip|disabl|overrid|disregard)\w*\s+(?:\w+\s+){0,2}?(?:(?:all|any|every)\s+(?:\w+\s+){0,2}?)?"
        r"(?:safety|security|validation|restrictions?|polic(?:y|ies)|guardrails?|permissions?|authenti\w+|authori[sz]ation"
        r"|content filter(?:s|ing)?|(?:\w+ )?assistant instructions)\b"
    ),
    re.compile(
        r"(?i)\btrust\s+(?:all|any|every)\b"
        r"|\b(?:unrestricted|full\s+system|full\s+admin\w*)\s+(?:\w+\s+)?(?:access|privileges|permissions)\b"
        r"|\bwithout\s+(?:any\s+)?(?:validation|verification|restrictions?|(?:security|safety|permission)\s+checks?)\b"
    ),
)


@dataclass(frozen=True, slots=True)
class CallText:
    """What one call brought back, as text; `call` is its number."""

    call: int
    text: str


def result_text(result: JsonObject) -> str:
    """Return every string of a result, bounded."""
    return "\n".join(text for _, text in strings(result))[:MAX_TEXT]


def judge_definitions(tools: Sequence[JsonObject], rulebook: Rulebook) -> Iterator[ProbeFinding]:
    """Find definitions that give the model orders."""
    for tool in tools:
        said = result_text(tool)
        quotes = _quoted(said, _is_no_manual) or _claims(said)
        if quotes:
            yield from_rule(rulebook.get("speaks-to-the-model"), str(tool.get("name")), None, evidence=quotes)


def judge_results(
    texts: Sequence[CallText], calls: Sequence[ProbeCall], context: RunContext, rulebook: Rulebook
) -> Iterator[ProbeFinding]:
    """Find results that hold a canary nobody pointed the tool at, or that give the model orders."""
    sources: dict[str, dict[str, None]] = {}
    orders: dict[str, tuple[str, ...]] = {}
    for each in texts:
        call = calls[each.call]
        found = context.watch.find(each.text.encode("utf-8", "replace")) if context.watch else ()
        told = [canary.source for canary in found if not is_expected(canary, call.scope, context.canaries)]
        if told:
            sources.setdefault(call.tool, {}).update(dict.fromkeys(told))
        if call.tool not in orders and (quotes := _orders(each.text)):
            orders[call.tool] = quotes
    for tool, names in sources.items():
        seen = f"Seen: the value of {', '.join(names)}"
        yield from_rule(rulebook.get("canary-in-result"), tool, None, seen, targets=tuple(names))
    for tool, quotes in orders.items():
        yield from_rule(rulebook.get("result-speaks-to-the-model"), tool, None, evidence=quotes)


def judge_asked(asked: Sequence[CallText], calls: Sequence[ProbeCall], rulebook: Rulebook) -> Iterator[ProbeFinding]:
    """Find orders in what a server asks the client's model or user during a call."""
    orders: dict[str, tuple[str, ...]] = {}
    for each in asked:
        if quotes := _orders(each.text):
            orders.setdefault(calls[each.call].tool, quotes)
    for tool, quotes in orders.items():
        yield from_rule(rulebook.get("asks-the-model"), tool, None, evidence=quotes)


def is_expected(canary: Canary, scope: DeclaredScope, canaries: Mapping[str, Canary]) -> bool:
    """Return whether a call may show a canary: its arguments name the file, or it is a document of a granted folder."""
    paths = [path for path, each in canaries.items() if each == canary]
    if not paths:  # a variable
        return scope.environment
    return any(is_under(path, scope.named) or (not canary.secret and is_under(path, scope.granted)) for path in paths)


def _claims(text: str) -> tuple[str, ...]:
    """Return what a definition claims of roles, trust and safety, if it does so in more than one way."""
    found = [match for each in _CLAIMS if (match := each.search(text)) is not None]
    return tuple(match[0].strip()[:MAX_QUOTED] for match in found) if len(found) > 1 else ()


def _is_no_manual(passage: Passage, quote: str) -> bool:
    """Return whether a passage of a definition is more than a manual has.

    Of a text that should only describe, less is enough than of one that a tool has fetched.
    """
    if _MANUAL.issuperset(passage.kinds):
        return False
    warns = _WARNING.issuperset(passage.kinds) and _WARNS.search(quote) is not None
    return passage.reaches(CONFIDENCE) or not warns


def _orders(text: str) -> tuple[str, ...]:
    return _quoted(text, lambda passage, _: passage.reaches(CONFIDENCE))


def _quoted(text: str, counts: Callable[[Passage, str], bool]) -> tuple[str, ...]:
    data = text.encode("utf-8", "replace")
    found = ((each, data[each.start : each.end].decode("utf-8", "replace")) for each in find_passages(data))
    quotes = (quote[:MAX_QUOTED] for each, quote in found if counts(each, quote))
    return tuple(dict.fromkeys(quotes))[:MAX_EVIDENCE]
