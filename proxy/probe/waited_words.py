"""Makes inputs with words that hidden deeds wait for: the names of power, and what swindlers speak about. Pure.

A tool that does harm only to an administrator, or only if asked about a bank, behaves well with every other input.
What it does with these is judged like what it does with any honest one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.probe.synthesise import Input, fits, synthesise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.core.model import JsonObject
    from proxy.probe.synthesise import SampleFiles

# Some tools compare a whole text, some look for a word in it.
WORDS = (
    *("admin", "root", "test", "DEBUG", "TRIGGER", "ACTIVATE", "EXECUTE", "UNLOCK", "BACKDOOR", "ADMIN_OVERRIDE"),
    "Reset the password of my account: login, security, payment, bank and credit card",
    "Download free software for my device: a tool, an app, a gift or a prize",
)
LABEL = "a word that is waited for"


def waited_words(tool: JsonObject, samples: SampleFiles) -> tuple[Input, ...]:
    """Return inputs in which each free text is such a word; none for a tool that takes no free text."""
    schema = tool.get("inputSchema")
    root: JsonObject = schema if isinstance(schema, dict) else {}
    properties = root.get("properties")
    known = properties if isinstance(properties, dict) else {}
    bases = {each.label: each.arguments for each in synthesise(tool, samples)}
    base = bases.get("other") or bases.get("all") or bases.get("required") or {}
    free = [name for name, value in base.items() if _is_free(value, known.get(name))]
    made = [Input(LABEL, {**base, **dict.fromkeys(free, word)}) for word in WORDS] if free else []
    return tuple(each for each in made if fits(root, each.arguments))


def _is_free(value: Any, schema: Any) -> bool:
    """Return whether a parameter takes any text: no path, no address, no choice."""
    rules: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    bound = any(name in rules for name in ("enum", "const", "format", "pattern"))
    return isinstance(value, str) and not bound and not value.startswith(("/", "~", ".")) and "://" not in value
