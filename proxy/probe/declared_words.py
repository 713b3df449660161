"""What the words of a tool's definition declare: a network, programs, the environment. Pure.

What a tool is for is in its name, in its parameters, and in what its description says that it does. A word
that only occurs in a description ("for the web", "as in a terminal") hints at something, and declares nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.core.model import JsonObject

_NETWORK_NAMES = frozenset(
    {
        *("url", "urls", "uri", "uris", "http", "https", "web", "website", "internet", "fetch", "download", "upload"),
        *("api", "host", "hostname", "domain", "endpoint", "webhook", "email", "mail", "smtp", "imap", "dns", "browse"),
        *("browser", "navigate", "crawl", "scrape", "rss", "feed", "ping", "whois", "proxy", "ip", "port", "remote"),
    }
)
_DOES_NETWORK = re.compile(
    r"\b(fetch(es|ing)?|downloads?|downloading|uploads?|uploading|crawls?|crawling|scrapes?|scraping|browses?|brows(er|ing)"
    r"|navigates?|pings?|https? (request|get|post|call)s?|web ?(request|hook|search|page)s?|url|urls|website|emails?)\b"
    r"|\b(search(es)?|queries|query|looks? up|lookup|reads?|gets?|sends?|posts?|publish(es)?|connects?|talks?|contacts?"
    r"|checks?|requests?|retrieves?|lists?|call(s|ing)?|us(es|ing)|via|from|over|through|to)"
    r" (\w+ ){0,5}?(web|internet|network|online|api|apis|server|servers|cloud|host|website|site|service)\b"
)
_HINTS_NETWORK = re.compile(r"\b(web|online|network|internet|api|remote|host|server|cloud|links?)\b")
_EXEC_NAMES = frozenset(
    {
        *("exec", "execute", "command", "commands", "cmd", "shell", "bash", "powershell", "terminal", "script", "run"),
        "eval",
    }
)
EXEC_PARAMETERS = frozenset({*_EXEC_NAMES, "program", "executable", "argv", "code"})
_DOES_EXEC = re.compile(
    r"\b(execut(e|es|ing|ion of)|runs?|running|invokes?|invoking|launch(es|ing)?|spawns?|starts?|evaluates?)"
    r" (\w+ ){0,4}?(commands?|programs?|scripts?|code|process(es)?|subprocess(es)?|shell|binary|binaries|executables?"
    r"|tests?|builds?|bash|powershell|jobs?)\b"
)
# In a tool's name these are verbs of anything ("run diagnostic"): what is run has to be named too.
_VERBS = frozenset({"run", "execute", "exec"})
_RUNNABLE = re.compile(
    r"\b(commands?|programs?|scripts?|code|process(es)?|subprocess(es)?|shell|bash|binary|binaries|executables?|tests?"
    r"|builds?|jobs?|tasks?|pipelines?|workflows?|tools?|cli|notebooks?|cells?|apps?|servers?|projects?|linter|lint|make"
    r"|npm|python|node|docker|containers?|git|cargo|go|java|kubectl|terraform|ansible|sql|query|queries)\b"
)
_ENVIRONMENT = re.compile(r"\b(env|environ|environment)\b")
# What a tool says of its own limits: that its files are those of one folder, and that not everybody may call it.
_ONE_FOLDER = re.compile(
    r"\b(from|in|within|inside|under|of|to) (the |a |an |its |your |our |this )?(\w+ )?"
    r"(public|allowed|permitted|shared|uploads?|uploaded|workspace|project|sandbox|sandboxed|data|documents?|notes|logs?"
    r"|reports|base|configured) (director(y|ies)|folders?)\b"
    r"|\b(only|restricted to|limited to|confined to) (\w+ ){0,4}(director(y|ies)|folders?)\b"
)
_GUARDED = re.compile(
    r"\b(requires?|needs?|must have|only (for|to|with)) (an? |the )?(valid )?"
    r"(admin\w*|authentication|authori[sz]ation|login|root|elevated|privileged|clearance)\b"
    r"|\b(admins?|administrators?|authori[sz]ed (users?|personnel|staff)) only\b"
    r"|\bonly (be )?(\w+ )?(by |to )?(an? |the )?(admin\w*|privileged|authori[sz]ed|authenticated)\b"
    r"|\brestricted access\b"
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What words declare; `hinted`: a network is mentioned, and nothing says that the tool uses one."""

    network: bool
    hinted: bool
    executes: bool
    environment: bool
    one_folder: bool
    guarded: bool
    words: frozenset[str]


def read_words(tool: JsonObject) -> Declared:
    """Return what the name, title, parameters and description of a tool declare."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    parameters = split_words(" ".join(properties) if isinstance(properties, dict) else "")
    called = frozenset(split_words(f"{tool.get('name', '')} {tool.get('title', '')}"))
    names = {*called, *parameters}
    text = " ".join(split_words(str(tool.get("description", ""))))
    takes_urls = isinstance(properties, dict) and any(_is_url(each) for each in properties.values())
    return Declared(
        network=bool(names & _NETWORK_NAMES) or takes_urls or bool(_DOES_NETWORK.search(text)),
        hinted=bool(_HINTS_NETWORK.search(text)),
        executes=_is_called_so(called, text)
        or not EXEC_PARAMETERS.isdisjoint(parameters)
        or bool(_DOES_EXEC.search(text)),
        environment=bool(_ENVIRONMENT.search(" ".join([*sorted(names), text]))),
        one_folder=bool(_ONE_FOLDER.search(text)),
        guarded=bool(_GUARDED.search(text)),
        words=frozenset([*names, *text.split()]),
    )


def _is_called_so(called: frozenset[str], text: str) -> bool:
    """Return whether a tool's name says that it starts programs."""
    verbs, rest = called & _VERBS, called - _VERBS
    alone = bool(verbs) and (not rest or _RUNNABLE.search(" ".join([*sorted(rest), text])) is not None)
    return alone or not (_EXEC_NAMES - _VERBS).isdisjoint(called)


def _is_url(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("format") in ("uri", "url", "hostname", "iri", "uri-reference")


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; camelCase and snake_case names are split."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
