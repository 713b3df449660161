"""Judges what hostile inputs could do: which of them acted, by its proof. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from proxy.probe.findings import ProbeFinding, from_rule, shown_line
from proxy.probe.hostile import METADATA
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.findings import ProbeCall
    from proxy.probe.hostile import Attempt
    from proxy.probe.observation_facts import ProbeObservation
    from proxy.probe.rulebook import Rulebook
    from proxy.probe.texts import CallText

RULES = {
    "ran": "argument-executed",
    "shown": "argument-evaluated",
    "opened": "argument-leads-out",
    "reached": "argument-reaches-inside",
    "complained": "argument-in-query",
    "filtered": "argument-in-query",
}
# A filter of LDAP that holds what was typed as it was typed, brackets too.
_FILTER = r"\((?:uid|cn|sn|mail|ou|o|givenName|displayName|sAMAccountName|userPrincipalName|memberOf)=%s\*\)\(\|"
# The name of a document is no path; that of a file often is.
_PATHS = re.compile(r"path|file|folder|dir|uri|url|source|document(?!_?name)|repo|root", re.IGNORECASE)
_SQL_ERRORS = re.compile(
    r"unrecognized token|near \"[^\"]*\": syntax error|syntax error at or near|unterminated quoted string"
    r"|You have an error in your SQL syntax|ORA-0\d{4}|Unclosed quotation mark|SQLITE_ERROR|OperationalError"
    r"|XPathEvalError|XPathSyntaxError|XPST0003|Invalid XPath|Unfinished literal|Bad search filter|malformed filter"
    r"|invalid LDAP filter|MongoServerError: unknown operator"
)
MAX_QUOTED = 160


def judge_attempts(
    attempts: Mapping[int, Attempt],
    calls: Sequence[ProbeCall],
    records: Iterable[ProbeObservation],
    texts: Iterable[CallText],
    rulebook: Rulebook,
) -> Iterator[ProbeFinding]:
    """Yield a finding for each tool and rule whose proof was seen. `attempts` are by the number of their call."""
    honest: dict[str, list[str]] = {}
    proofs: dict[int, str] = {}
    for record in records:
        attempt = attempts.get(-1 if record.call is None else record.call)
        if attempt is not None and record.call is not None and _acted(attempt, record):
            proofs.setdefault(record.call, shown_line(record.observation.line))
    for each in texts:
        attempt = attempts.get(each.call)
        if attempt is None:
            honest.setdefault(calls[each.call].tool, []).append(each.text)
            continue
        others = honest.get(calls[each.call].tool, [])
        if (quote := _told(attempt, each.text)) and not _always(attempt, quote, others):
            proofs.setdefault(each.call, quote)
    yield from _findings(attempts, calls, proofs, rulebook)


def _findings(
    attempts: Mapping[int, Attempt], calls: Sequence[ProbeCall], proofs: Mapping[int, str], rulebook: Rulebook
) -> Iterator[ProbeFinding]:
    seen: set[tuple[str, str]] = set()
    for call, line in sorted(proofs.items()):
        attempt, tool = attempts[call], calls[call].tool
        name = _rule(attempt, calls[call].scope)
        if (tool, name) not in seen:
            seen.add((tool, name))
            told = f"Seen: {attempt.label}, in {attempt.parameter!r}"
            yield from_rule(rulebook.get(name), tool, None, told, (line,), (attempt.parameter,))


def _rule(attempt: Attempt, scope: DeclaredScope) -> str:
    if attempt.proof == "opened" and attempt.label.startswith("the name of a module"):
        return RULES["ran"]
    # What is called a path may be one, wherever it leads, and a command reads what it says: worth knowing, no escape.
    command, path = attempt.label.startswith("a command that"), _PATHS.search(attempt.parameter)
    if attempt.proof == "opened" and (command or path):
        return "own-limit-broken" if scope.one_folder and not command else "opens-any-file"
    return RULES[attempt.proof]


def _acted(attempt: Attempt, record: ProbeObservation) -> bool:
    seen, path = record.observation, record.observation.path or ""
    match attempt.proof:
        case "ran":
            named = bool(seen.argv) and posixpath.basename(seen.argv[0]) == "echo" and seen.argv[-1] == attempt.token
            return seen.capability is Capability.PROC_EXEC and named
        case "opened":
            opened = seen.capability is Capability.FS_READ and seen.action == "open" and seen.ok
            return opened and (path == attempt.token or (attempt.token.endswith(".") and attempt.token in path))
        case "reached":
            return seen.capability is Capability.NET_CONNECT and (seen.peer or "").startswith(f"{METADATA}:")
        case _:
            return False


def _told(attempt: Attempt, text: str) -> str | None:
    """Return the part of a result that shows that an input was evaluated, or became part of a query."""
    if attempt.proof == "shown":
        at = text.find(attempt.token)
        return text[max(0, at - 40) : at + MAX_QUOTED] if at >= 0 else None
    if attempt.proof == "filtered":
        shown = re.search(_FILTER % re.escape(attempt.token), text, re.IGNORECASE)
        return text[shown.start() : shown.start() + MAX_QUOTED] if shown else None
    found = _SQL_ERRORS.search(text) if attempt.proof == "complained" else None
    return found[0][:MAX_QUOTED] if found else None


def _always(attempt: Attempt, quote: str, others: Sequence[str]) -> bool:
    """Return whether a tool says the same to an honest caller. An error that quotes the caller is another each time."""
    quotes = {told for text in others if (told := _told(attempt, text))}
    return quote in quotes if attempt.proof == "complained" else bool(quotes)
