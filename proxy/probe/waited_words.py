"""Makes inputs with words that hidden deeds wait for: the names of power, and what swindlers speak about. Pure.

A tool that does harm only to an administrator, or only if asked about a bank, behaves well with every other input.
What it does with these is judged like what it does with any honest one. Words of its own source are better guesses.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from proxy.probe.declared_words import EXEC_PARAMETERS, split_words
from proxy.probe.synthesise import Input, fits, synthesise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.source_words import SourceWord
    from proxy.probe.synthesise import SampleFiles

# Some tools compare a whole text, some look for a word in it.
WORDS = (
    *("admin", "root", "test", "DEBUG", "TRIGGER", "ACTIVATE", "EXECUTE", "UNLOCK", "BACKDOOR", "ADMIN_OVERRIDE"),
    "Reset the password of my account: login, security, payment, bank and credit card",
    "Download free software for my device: a tool, an app, a gift or a prize",
)
LABEL = "a word that is waited for"
MAX_TOGETHER = 4
_HOST = re.compile(r"\.?[A-Za-z0-9-]{2,40}(?:\.[A-Za-z0-9-]{2,40}){0,4}")


def waited_words(tool: JsonObject, samples: SampleFiles, words: Sequence[SourceWord] = ()) -> tuple[Input, ...]:
    """Return inputs in which each free text is such a word; none for a tool that takes no free text.

    `words` are those of the server's source. One that is compared with a parameter stands in that alone.
    """
    schema = tool.get("inputSchema")
    root: JsonObject = schema if isinstance(schema, dict) else {}
    properties = root.get("properties")
    known = properties if isinstance(properties, dict) else {}
    bases = {each.label: each.arguments for each in synthesise(tool, samples)}
    base = bases.get("other") or bases.get("all") or bases.get("required") or {}
    free = [name for name, value in base.items() if _is_free(value, known.get(name))]
    made = [dict.fromkeys(free, word) for word in WORDS] if free else []
    made += _of_source(base, known, words)
    unlike = {json.dumps(each, sort_keys=True): each for each in ({**base, **values} for values in made)}
    return tuple(Input(LABEL, each) for each in unlike.values() if fits(root, each))


def _of_source(base: JsonObject, known: Mapping[str, Any], words: Sequence[SourceWord]) -> list[JsonObject]:
    """Return what parameters become: one word after the other, and those of several parameters together."""
    # A list of what is forbidden is in a source as well: what is there to be run is given none of it.
    open_ = [name for name in base if EXEC_PARAMETERS.isdisjoint(split_words(name))]
    free = [name for name in open_ if _is_free(base[name], known.get(name))]
    addresses = [name for name in open_ if isinstance(base[name], str) and "://" in base[name]]
    own: dict[str, list[str]] = {}
    made: list[JsonObject] = []
    for word in words:
        if word.subject in base:
            if word.subject in open_ and isinstance(base[word.subject], str):
                own.setdefault(word.subject, []).append(word.text)
                made.append({word.subject: word.text})
        elif free:
            made.append(dict.fromkeys(free, word.text))
        if addresses and _HOST.fullmatch(word.text):
            made.append(dict.fromkeys(addresses, _address(word.text)))
    most = max(map(len, own.values()), default=0) if len(own) > 1 else 0
    together = [{name: texts[turn % len(texts)] for name, texts in own.items()} for turn in range(most)]
    return [*made, *together[:MAX_TOGETHER]]


def _address(word: str) -> str:
    host = word.strip(".")
    return f"https://{host if '.' in host else f'{host}.example'}/"


def _is_free(value: Any, schema: Any) -> bool:
    """Return whether a parameter takes any text: no path, no address, no choice."""
    rules: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    bound = any(name in rules for name in ("enum", "const", "format", "pattern"))
    return isinstance(value, str) and not bound and not value.startswith(("/", "~", ".")) and "://" not in value
