"""Works out what a tool declares: by its annotations, description, schema, arguments and the server's command. Pure.

What is not declared is not expected: a tool that formats text and does not mention a network has no reason to use one.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
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
# Variables that say where code is found; they grant no access to data.
SEARCH_PATHS = frozenset({"PATH", "PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH"})


@dataclass(frozen=True, slots=True)
class DeclaredScope:
    """What is declared for one tool; for one call of it, with what its arguments name."""

    read_only: bool = False
    network: bool = False
    executes: bool = False
    words: frozenset[str] = frozenset()  # of its name, its description and the command: such programs may be started
    granted: tuple[str, ...] = ()  # files and folders that the command line and the variables name
    named: tuple[str, ...] = ()  # files and folders that the arguments name
    hosts: frozenset[str] = frozenset()  # that the arguments name
    launcher: bool = False  # a package runner, which fetches and starts what it runs

    def data(self) -> JsonObject:
        flags = {"read_only": self.read_only, "network": self.network, "executes": self.executes}
        return {**flags, "paths": list(self.granted)}


def declare_server(command: Sequence[str], variables: Mapping[str, str], folder: str) -> DeclaredScope:
    """Return what a server's command line and its variables grant it."""
    flags = [word.partition("=")[2] for word in command[1:] if "=" in word]
    texts = [*command[1:], *flags, *(value for name, value in variables.items() if name not in SEARCH_PATHS)]
    return DeclaredScope(
        words=frozenset(_words(" ".join(map(posixpath.basename, command)))),
        granted=tuple(dict.fromkeys(path for word in texts if (path := _path(word, folder)))),
        launcher=posixpath.basename(command[0]) in PACKAGE_RUNNERS,
    )


def declare_tool(server: DeclaredScope, tool: JsonObject) -> DeclaredScope:
    """Return what a tool of that server declares. An annotation overrides what its description suggests."""
    annotations = tool.get("annotations")
    hints: JsonObject = annotations if isinstance(annotations, dict) else {}
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = " ".join(properties) if isinstance(properties, dict) else ""
    described = f"{tool.get('name', '')} {tool.get('title', '')} {tool.get('description', '')} {names}"
    text = " ".join(_words(described))
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
    """Return the tool's scope with what the arguments of one call name."""
    texts = [text for _, text in strings(arguments) if len(text) <= MAX_STRING]
    paths = [path for text in texts if (path := _path(text, folder))]
    relative = [text for text in texts if not text.startswith(("/", "~")) and "://" not in text]
    # Such as a file name beside a repository's path.
    nested = [posixpath.normpath(posixpath.join(path, text)) for path in paths for text in relative]
    hosts = {host for text in texts if (host := _host(text))}
    return replace(tool, named=tuple(dict.fromkeys([*paths, *nested])), hosts=frozenset(hosts))


def is_under(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of `folders`, inside one, or beside one with its name as a prefix."""
    # The last are the temporary files of programs that write a file and rename it: `notes.md.tmp`.
    return any(path == each or path.startswith((each.rstrip("/") + "/", f"{each}.")) for each in folders)


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


def _words(text: str) -> list[str]:
    """Return the words of a text in lower case; camelCase and snake_case names are split."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
