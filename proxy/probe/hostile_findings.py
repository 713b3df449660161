"""Judges what hostile inputs could do: which of them acted, by its proof. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from proxy.probe.declared_scope import is_under
from proxy.probe.findings import ProbeFinding, from_rule, shown_line
from proxy.probe.hostile import ENTITY, OPTION, UP
from proxy.probe.observation_facts import TEMPORARY
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.experiments import Planned, Proved
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
    "wrote": "argument-executed",
    "headed": "argument-in-query",
}
# A filter of LDAP that holds what was typed as it was typed, brackets too.
_FILTER = r"\((?:uid|cn|sn|mail|ou|o|givenName|displayName|sAMAccountName|userPrincipalName|memberOf)=%s\*\)\(\|"
# The name of a document is no path; that of a file often is.
_PATHS = re.compile(r"path|file|folder|dir|uri|url|source|document(?!_?name)|repo|root", re.IGNORECASE)
_SQL_ERRORS = re.compile(
    r"unrecognized token|near \\?\"[^\"]*\": syntax error|syntax error at or near|unterminated quoted string"
    r"|You have an error in your SQL syntax|ORA-0\d{4}|Unclosed quotation mark|SQLITE_ERROR|OperationalError"
    r"|XPathEvalError|XPathSyntaxError|XPST0003|Invalid XPath|Unfinished literal|Bad search filter|malformed filter"
    r"|invalid LDAP filter|MongoServerError: unknown operator|SQLSTATE\[|ER_PARSE_ERROR|Incorrect syntax near"
    r"|psycopg\w*\.errors|quoted string not properly terminated|Neo\.ClientError\.Statement\.SyntaxError|xmlXPathEval"
)
MAX_QUOTED = 160


def judge_attempts(
    attempts: Mapping[int, Attempt],
    calls: Sequence[ProbeCall],
    records: Iterable[ProbeObservation],
    texts: Iterable[CallText],
    rulebook: Rulebook,
    *,
    usual: tuple[str, ...] = (),
) -> Iterator[ProbeFinding]:
    """Yield a finding for each tool and rule whose proof was seen. `attempts` are by the number of their call.

    `usual` are the folders in which any program looks for a bare name: where it was started, and its home.
    """
    honest: dict[str, list[str]] = {}
    proofs: dict[int, str] = {}
    folders: dict[tuple[str, str], str] = {}
    for record in records:
        attempt = attempts.get(-1 if record.call is None else record.call)
        if attempt is None or record.call is None:
            continue
        if attempt.proof == "placed":
            folder = _folder(attempt, record)
            if folder and not _is_usual(folder, usual, calls[record.call].scope):
                folders[calls[record.call].tool, attempt.parameter] = folder
        elif _acted(attempt, record):
            proofs.setdefault(record.call, shown_line(record.observation.line))
    for each in texts:
        attempt = attempts.get(each.call)
        if attempt is None:
            honest.setdefault(calls[each.call].tool, []).append(each.text)
            continue
        others = honest.get(calls[each.call].tool, [])
        if (quote := _told(attempt, each.text)) and not _always(attempt, quote, others):
            proofs.setdefault(each.call, quote)
    yield from _findings(attempts, calls, proofs, folders, rulebook)


def _findings(
    attempts: Mapping[int, Attempt],
    calls: Sequence[ProbeCall],
    proofs: Mapping[int, str],
    folders: Mapping[tuple[str, str], str],
    rulebook: Rulebook,
) -> Iterator[ProbeFinding]:
    seen: set[tuple[str, str]] = set()
    for call, line in sorted(proofs.items()):
        attempt, tool = attempts[call], calls[call].tool
        name = _rule(attempt, calls[call].scope, folders.get((tool, attempt.parameter), ""))
        if (tool, name) not in seen:
            seen.add((tool, name))
            told = f"Seen: {attempt.label}, in {attempt.parameter!r}"
            yield from_rule(rulebook.get(name), tool, None, told, (line,), (attempt.parameter,))


def _folder(attempt: Attempt, record: ProbeObservation) -> str | None:
    """Return the folder in which a tool looked for a name."""
    folder, name = posixpath.split(record.observation.path or "")
    return folder if record.observation.capability is Capability.FS_READ and name == attempt.token else None


def _rule(attempt: Attempt, scope: DeclaredScope, folder: str) -> str:
    """Return the rule that was broken. `folder` is the one that the tool itself puts before the parameter, if any."""
    if attempt.proof == "opened" and attempt.label.startswith(("the name of a module", OPTION)):
        return RULES["ran"]
    # What is called a path may be one, wherever it leads, and a command reads what it says: worth knowing, no escape.
    command, path = attempt.label.startswith("a command that"), _PATHS.search(attempt.parameter)
    if attempt.label == ENTITY or (attempt.label == UP and folder):
        return RULES["opened"]
    if attempt.proof == "opened" and (command or path):
        return "own-limit-broken" if scope.one_folder and not command else "opens-any-file"
    return RULES[attempt.proof]


def _is_usual(folder: str, usual: tuple[str, ...], scope: DeclaredScope) -> bool:
    return folder in (*usual, "/", *TEMPORARY) or is_under(folder, scope.named)


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
            looked_up = seen.capability is Capability.NET_DNS and seen.name == attempt.token
            return looked_up or (
                seen.capability is Capability.NET_CONNECT and (seen.peer or "").startswith(f"{attempt.token}:")
            )
        case "wrote":
            return seen.capability is Capability.FS_WRITE and path == attempt.token and seen.ok
        case "headed":
            # In a protocol without headers a line break is a text's own.
            line, _, rest = seen.data.partition(b"\r\n\r\n")[0].partition(b"\r\n")
            asked = seen.capability is Capability.NET_CONNECT and b" HTTP/1." in line
            return asked and attempt.token.encode() in b"\r\n" + rest
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


def judge_experiments(proved: Iterable[tuple[str, Planned, Proved]], rulebook: Rulebook) -> Iterator[ProbeFinding]:
    """Yield a finding for each tool and rule that an experiment proved to be broken."""
    seen: set[tuple[str, str]] = set()
    for tool, planned, each in proved:
        if (tool, each.rule) not in seen:
            seen.add((tool, each.rule))
            name = planned.parameter.name
            told = f"Seen: {planned.experiment.label}, in {name!r}"
            yield from_rule(rulebook.get(each.rule), tool, None, told, (each.quote,), (name,))
