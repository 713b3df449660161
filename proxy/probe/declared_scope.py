"""What a tool says that it does: by its annotations, its words, its schema, its arguments and the server's command.

Pure. What is not said is not declared: a tool that formats text and says nothing
of a network has no business on one.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from proxy.gate.tool_descriptions import strings
from proxy.trace.server_name import PACKAGE_RUNNERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.model import JsonObject

NETWORK = re.compile(
    r"\b(urls?|uris?|https?|web|website|internet|online|network|fetch(es)?|download(s|ing)?|uploads?|api|remote|host|"
    r"hostname|email|smtp|dns|webhook|browser|crawl|scrape|rss)\b"
)
EXECUTE = re.compile(
    r"\b(execut(e|es|ing)|commands?|shell|terminal|subprocess|process(es)? started|spawns?|runs? (a|the) (\w+ )?"
    r"(program|script|command|process|code)|bash|powershell)\b"
)
MAX_STRING = 4096
SEARCHED = frozenset({"PATH", "PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH"})
"""Variables that say where to look for code, and grant nothing."""


@dataclass(frozen=True, slots=True)
class DeclaredScope:
    """What is declared for one tool; for one call of it, with what its arguments name."""

    read_only: bool = False
    network: bool = False
    executes: bool = False
    words: frozenset[str] = frozenset()
    """All words of its name and description, and of the server's command: programs it may start by name."""
    granted: tuple[str, ...] = ()
    """Files and folders that the command line and the variables name."""
    named: tuple[str, ...] = ()
    """Files and folders that the arguments name."""
    hosts: frozenset[str] = frozenset()
    """Hosts that the arguments name."""
    launcher: bool = False
    """A package runner, which fetches and starts what it runs."""

    def data(self) -> JsonObject:
        """Return it as a report has it."""
        return {
            "read_only": self.read_only,
            "network": self.network,
            "executes": self.executes,
            "paths": list(self.granted),
        }


def declare_server(command: Sequence[str], variables: Mapping[str, str], folder: str) -> DeclaredScope:
    """Say what a server's command line and its variables grant it."""
    flags = [word.partition("=")[2] for word in command[1:] if "=" in word]
    said = [*command[1:], *flags, *(value for name, value in variables.items() if name not in SEARCHED)]
    return DeclaredScope(
        words=frozenset(_words(" ".join(map(posixpath.basename, command)))),
        granted=tuple(dict.fromkeys(path for word in said if (path := _path(word, folder)))),
        launcher=posixpath.basename(command[0]) in PACKAGE_RUNNERS,
    )


def declare_tool(server: DeclaredScope, tool: JsonObject) -> DeclaredScope:
    """Say what a tool of that server declares. A hint is taken at its word, and goes before what words suggest."""
    annotations = tool.get("annotations")
    hints: JsonObject = annotations if isinstance(annotations, dict) else {}
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = " ".join(properties) if isinstance(properties, dict) else ""
    text = _spell(f"{tool.get('name', '')} {tool.get('title', '')} {tool.get('description', '')} {names}")
    open_world = hints.get("openWorldHint")
    return replace(
        server,
        read_only=hints.get("readOnlyHint") is True,
        network=open_world if isinstance(open_world, bool) else bool(NETWORK.search(text)),
        executes=bool(EXECUTE.search(text)),
        words=server.words | frozenset(text.split()),
        launcher=False,
    )


def declare_call(tool: DeclaredScope, arguments: JsonObject, folder: str) -> DeclaredScope:
    """Add what the arguments of one call name; a path may be relative to another that they name."""
    texts = [text for _, text in strings(arguments) if len(text) <= MAX_STRING]
    paths = [path for text in texts if (path := _path(text, folder))]
    relative = [text for text in texts if not text.startswith(("/", "~")) and "://" not in text]
    nested = [posixpath.normpath(posixpath.join(path, text)) for path in paths for text in relative]
    hosts = {host for text in texts if (host := _host(text))}
    return replace(tool, named=tuple(dict.fromkeys([*paths, *nested])), hosts=frozenset(hosts))


def is_under(path: str, places: Iterable[str]) -> bool:
    """Return whether a path is one of `places`, inside one, or a temporary beside one."""
    return any(path == place or path.startswith((place.rstrip("/") + "/", f"{place}.")) for place in places)


def _path(word: str, folder: str) -> str | None:
    if word.startswith("file://"):
        word = urlsplit(word).path
    if word.startswith("/") and len(word) > 1 and "\n" not in word:
        return posixpath.normpath(word)
    relative = word in (".", "..") or word.startswith(("./", "../"))
    return posixpath.normpath(posixpath.join(folder, word)) if relative else None


def _host(text: str) -> str | None:
    if "://" not in text:
        return text.lower() if re.fullmatch(r"(?i)[a-z0-9-]+(\.[a-z0-9-]+)+|[0-9a-f:]*:[0-9a-f:]+", text) else None
    try:
        return urlsplit(text).hostname
    except ValueError:
        return None


def _spell(text: Any) -> str:
    return " ".join(_words(str(text)))


def _words(text: str) -> list[str]:
    """Return the words of a text, with those of names in any case."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
