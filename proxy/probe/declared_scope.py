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
from proxy.probe.declared_words import read_words, split_words
from proxy.trace.server_name import PACKAGE_RUNNERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.model import JsonObject

MAX_STRING = 4096
OUTPUT = re.compile(
    r"\b(saves?|saved|output|export|exported|written) (\w+ )*?(to|file|path|as)\b|\boutput_?(file|path)\b"
)
INSTALLED = re.compile(r"/(?:site-packages|dist-packages|node_modules)/((?:@[^/]+/)?[^/]+)(?=/)")
TELLING = 8  # an argument of so many characters is recognised in what is sent
# Variables that say where code is found; they grant no access to data.
SEARCH_PATHS = frozenset({"PATH", "PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH"})


@dataclass(frozen=True, slots=True)
class DeclaredScope:
    """What is declared for one tool; for one call of it, with what its arguments name."""

    read_only: bool = False
    network: bool = False
    executes: bool = False
    hinted: bool = False  # a network is mentioned, in words that declare none
    environment: bool = False  # it shows the environment
    one_folder: bool = False  # it says that its files are those of one folder
    guarded: bool = False  # it says that not everybody may call it
    server_words: frozenset[str] = frozenset()  # of the server's command
    words: frozenset[str] = frozenset()  # of its name, its description and the command: such programs may be started
    granted: tuple[str, ...] = ()  # files and folders that the command line and the variables name
    named: tuple[str, ...] = ()  # files and folders that the arguments name
    hosts: frozenset[str] = frozenset()  # that the arguments name
    output_names: frozenset[str] = frozenset()  # parameters that say where the result is saved
    outputs: tuple[str, ...] = ()  # the files that the arguments name by those
    granted_hosts: frozenset[str] = frozenset()  # that the command line and the variables name
    texts: tuple[str, ...] = ()  # the longer texts among the arguments
    launcher: bool = False  # a package runner, which fetches and starts what it runs

    def data(self) -> JsonObject:
        flags = {"read_only": self.read_only, "network": self.network, "executes": self.executes}
        return {**flags, "paths": list(self.granted)}


def declare_server(command: Sequence[str], variables: Mapping[str, str], folder: str) -> DeclaredScope:
    """Return what a server's command line and its variables grant it."""
    flags = [word.partition("=")[2] for word in command[1:] if "=" in word]
    texts = [*command[1:], *flags, *(value for name, value in variables.items() if name not in SEARCH_PATHS)]
    # `node /x/node_modules/server-github/dist/index.js` has the service's name in no file's name.
    named = [*map(posixpath.basename, command), *(found[1] for word in command for found in INSTALLED.finditer(word))]
    words = frozenset(split_words(" ".join(named)))
    return DeclaredScope(
        server_words=words,
        words=words,
        granted=tuple(dict.fromkeys(path for word in texts if (path := _path(word, folder)))),
        granted_hosts=frozenset(host for word in texts if (host := _host(word))),
        launcher=posixpath.basename(command[0]) in PACKAGE_RUNNERS,
    )


def declare_tool(server: DeclaredScope, tool: JsonObject) -> DeclaredScope:
    """Return what a tool of that server declares. An annotation overrides what its description suggests."""
    annotations = tool.get("annotations")
    hints: JsonObject = annotations if isinstance(annotations, dict) else {}
    said = read_words(tool)
    open_world = hints.get("openWorldHint")
    network = open_world if isinstance(open_world, bool) else said.network
    return replace(
        server,
        read_only=hints.get("readOnlyHint") is True,
        network=network,
        hinted=said.hinted and open_world is not False,
        executes=said.executes,
        environment=said.environment,
        one_folder=said.one_folder,
        guarded=said.guarded,
        words=server.words | said.words,
        output_names=_output_names(tool),
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
    saved = [text for name, text in arguments.items() if name in tool.output_names and isinstance(text, str)]
    outputs = tuple(path for text in saved if (path := _path(text, folder)))
    long = tuple(text for text in texts if len(text) >= TELLING)
    return replace(
        tool, named=tuple(dict.fromkeys([*paths, *nested])), hosts=frozenset(hosts), texts=long, outputs=outputs
    )


def _output_names(tool: JsonObject) -> frozenset[str]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    items = properties.items() if isinstance(properties, dict) else ()
    described = {name: each.get("description") if isinstance(each, dict) else "" for name, each in items}
    return frozenset(name for name, text in described.items() if OUTPUT.search(f"{name} {text}".lower()))


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
