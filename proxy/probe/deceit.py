"""Judges results that deceive: lures, commands in addresses, encryption that is none, credentials shown. Pure.

No act shows these: such a tool does nothing but answer. Each is told by what no honest answer holds.
"""

from __future__ import annotations

import codecs
import functools
import re
from base64 import b64decode, urlsafe_b64decode
from binascii import Error
from typing import TYPE_CHECKING

from proxy.probe.findings import ProbeFinding, from_rule
from proxy.redact.detector_catalog import builtin
from proxy.redact.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.findings import ProbeCall
    from proxy.probe.observation_facts import RunContext
    from proxy.probe.rulebook import Rulebook
    from proxy.probe.texts import CallText

MAX_QUOTED = 160
MAX_SCANNED = 1 << 16
MAX_ENCODED = 50
# What swindlers write, near a link or an invitation to click.
_LURES = tuple(
    re.compile(each, re.IGNORECASE)
    for each in (
        r"\b(?:account|payment|billing|device|wallet)\b[^.\n]{0,80}\b(?:immediate attention|infected|declined)",
        r"\b(?:account|device|wallet)\b[^.\n]{0,80}\b(?:compromised|will be (?:locked|closed|suspended|terminated))\b",
        r"\b(?:verify|update|confirm|secure)\b[^.\n]{0,80}\bto (?:avoid|prevent) (?:\w+ ){0,2}(?:suspension|closure)",
        r"\b(?:you(?:'ve| have) won|claim your)\b[^.\n]{0,60}\b(?:gift|prize|reward|cash|bonus)",
        r"\b(?:update|verification|action|payment) required\b[^.\n]{0,20}\bclick here\b",
        r"\b(?:premium|cracked|full version)\b[^.\n]{0,60}\bfree\b",
    )
)
_INVITES = re.compile(r"https?://\S+|\bclick (?:here|to)\b|\b(?:instant|free) download\b", re.IGNORECASE)
NEAR = 200
# Clients have passed addresses on to a shell. What asks which machine this is stands in any installation guide.
_COMMAND_IN_ADDRESS = re.compile(r"https?://[^\s\"'<>]{0,500}?\$\((?!uname|arch\b|dpkg|lsb_release)[^)\n]{1,200}\)")
_ENCRYPTS = re.compile(r"\bencrypt(?:s|ed|ing|ion)?\b")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{10,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){8,}")
# Who says one of these has credentials to show, or makes them.
_ABOUT_CREDENTIALS = frozenset(
    {
        *("password", "passwords", "passphrase", "secret", "secrets", "credential", "credentials", "token", "tokens"),
        *("jwt", "key", "keys", "keypair", "certificate", "generate", "generates", "random", "hash", "encrypt"),
        *("encrypts", "decrypt", "sign", "signs"),
    }
)


def judge_deceit(
    texts: Sequence[CallText], calls: Sequence[ProbeCall], context: RunContext, rulebook: Rulebook
) -> Iterator[ProbeFinding]:
    """Find results that lure, hold a command, only look encrypted, or show a credential; once for a tool and a rule."""
    seen: set[tuple[str, str]] = set()
    for each in texts:
        call = calls[each.call]
        for name, quote in _told(each.text[:MAX_SCANNED], call.scope, context):
            if (call.tool, name) not in seen:
                seen.add((call.tool, name))
                yield from_rule(rulebook.get(name), call.tool, None, evidence=(quote[:MAX_QUOTED],))


def judge_described_credentials(tools: Sequence[JsonObject], rulebook: Rulebook) -> Iterator[ProbeFinding]:
    """Find definitions that hold a credential, which every client and every model gets to read."""
    for tool in tools:
        found = credentials(f"{tool.get('description', '')}\n{tool.get('inputSchema', '')}"[:MAX_SCANNED])
        if found:
            kinds = ", ".join(found.values())
            yield from_rule(rulebook.get("credential-shown"), str(tool.get("name")), None, f"Seen: {kinds}")


def _told(text: str, scope: DeclaredScope, context: RunContext) -> Iterator[tuple[str, str]]:
    lure = find_lure(text)
    if lure:
        yield "result-lures", lure
    command = _COMMAND_IN_ADDRESS.search(text)
    if command and not any(command[0] in given for given in scope.texts):
        yield "command-in-address", command[0]
    plain = find_plain(text, scope.texts) if _ENCRYPTS.search(" ".join(scope.words)) else None
    if plain:
        yield "encryption-that-is-none", plain
    declared = scope.environment or speaks_of_credentials(scope.words)
    if declared and not scope.guarded:
        return
    shown = [kind for secret, kind in credentials(text).items() if not _is_known(secret, scope, context)]
    if shown:
        # Nobody who calls during a probe has logged in to anything.
        yield "own-limit-broken" if declared else "credential-shown", ", ".join(dict.fromkeys(shown))


def find_lure(text: str) -> str | None:
    """Return the part of a text that urges people to click."""
    for lure in _LURES:
        for found in lure.finditer(text):
            if _INVITES.search(text, max(0, found.start() - NEAR), found.end() + NEAR):
                return found[0]
    return None


def find_plain(text: str, given: Sequence[str]) -> str | None:
    """Return what stands in a text in no more than an encoding, of the texts that were to be encrypted."""
    for quote, decoded in _decodings(text):
        if any(each in decoded for each in given):
            return quote
    return None


def _decodings(text: str) -> Iterator[tuple[str, str]]:
    for found in _BASE64.findall(text)[:MAX_ENCODED]:
        bare = found.rstrip("=")
        for decode in (b64decode, urlsafe_b64decode):
            try:
                yield found, decode(bare + "=" * (-len(bare) % 4)).decode("utf-8", "replace")
            except (Error, ValueError):
                continue
    for found in _HEX.findall(text)[:MAX_ENCODED]:
        yield found, bytes.fromhex(found).decode("utf-8", "replace")
    yield text, codecs.encode(text, "rot13")
    yield text, text[::-1]


def credentials(text: str) -> Mapping[str, str]:
    """Return the credentials in a text, each with the name of its kind."""
    return _scan(text, ("secrets",))


def personal_numbers(text: str) -> Mapping[str, str]:
    """Return the numbers of cards, accounts and social insurance in a text, each with the name of its kind."""
    return _scan(text, ("pii.card", "pii.iban", "pii.us-ssn"))


def contacts(text: str) -> Mapping[str, str]:
    """Return the addresses and telephone numbers in a text, each with the name of its kind."""
    return _scan(text, ("pii.email", "pii.phone"))


def speaks_of_credentials(words: Iterable[str]) -> bool:
    """Return whether someone with these words has credentials to show, or makes them."""
    return not _ABOUT_CREDENTIALS.isdisjoint(words)


def _scan(text: str, kinds: tuple[str, ...]) -> Mapping[str, str]:
    scanner = _scanner()
    data = text.encode("utf-8", "replace")
    return {
        data[each.start : each.end].decode("utf-8", "replace"): scanner.catalog.detectors[each.detector].id
        for each in scanner.matches(data, scanner.catalog.select(kinds))
    }


@functools.cache
def _scanner() -> Scanner:
    return Scanner(builtin())


def _is_known(secret: str, scope: DeclaredScope, context: RunContext) -> bool:
    """Return whether a credential is the caller's, or a canary, of which other rules speak."""
    given = any(secret in text or text in secret for text in scope.texts)
    return given or bool(context.watch and context.watch.find(secret.encode()))
