"""What the names of tools and arguments say about their values. Pure, no I/O.

A name only adds to what a value's form says: an agent cannot choose the names, the server does.
Names come folded (`eval_context.fold_key`): `filePath`, `file_path` and `FILE-PATH` are `filepath`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_PATH_ENDS: Final = (
    *("path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths"),
    *("dir", "dirs", "directory", "directories", "folder", "folders"),
)
# Paths of another kind: in a document, in a web service.
_OTHER_PATHS: Final = frozenset(
    (
        *("xpath", "xpaths", "jsonpath", "jsonpaths", "jsonpointer", "pointer", "jmespath", "jqpath", "profile"),
        *("urlpath", "apipath", "requestpath", "route", "routepath", "pathname", "regex", "regexp", "classpath"),
        # Text to look for and to put in its place.
        *("oldstring", "newstring", "oldstr", "newstr", "oldtext", "newtext", "replacement", "replacewith"),
    )
)
# Here a bare `etc/passwd` may be a path too.
_PLACES: Final = frozenset(
    (
        *("source", "sources", "src", "destination", "dest", "dst", "target", "targets", "location", "cwd", "workdir"),
        *("from", "to", "input", "inputs", "output", "outputs", "infile", "outfile", "in", "out", "root", "basedir"),
        *("config", "template", "document", "attachment", "attachments", "image", "log", "database", "archive"),
    )
)
_HOSTS: Final = (
    *("url", "urls", "uri", "uris", "host", "hosts", "hostname", "hostnames", "endpoint", "endpoints", "href", "link"),
    *("links", "domain", "origin", "website", "webhook"),
)
_COMMANDS: Final = frozenset(("argv", "shellscript", "bashscript", "oneliner", "bash", "sh"))
# A script may be in another language.
_SCRIPTS: Final = frozenset(
    (
        *("script", "scripts", "shell", "exec", "execute", "run", "cli", "terminal", "program", "executable"),
        *("entrypoint", "code", "input", "line", "lines", "steps", "stdin", "keys"),
    )
)
_LISTS_OF_COMMANDS: Final = frozenset(("commands", "cmds", "scripts", "lines", "steps", "commandlist"))
_PROGRAMS: Final = frozenset(
    ("command", "cmd", "program", "executable", "binary", "bin", "exe", "entrypoint", "shell", "interpreter", "path")
)
_ARGUMENTS: Final = frozenset(
    ("args", "arguments", "argv", "params", "parameters", "commandargs", "cmdargs", "options", "flags", "argumentlist")
)
_PROSE: Final = frozenset(
    (
        *("title", "body", "text", "message", "content", "contents", "description", "prompt", "query", "q", "question"),
        *("comment", "comments", "summary", "note", "notes", "subject", "search", "answer", "reason", "thought"),
        *("markdown", "html", "caption", "label", "code", "diff", "patch", "messages", "instructions", "filecontent"),
        *("filetext", "observations", "oldstring", "newstring", "oldstr", "newstr", "oldtext", "newtext", "pattern"),
    )
)

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_POWERSHELL: Final = re.compile("powershell|pwsh", re.IGNORECASE)
# Tools that run command lines.
_RUNNING: Final = frozenset(
    (
        *("shell", "sh", "bash", "zsh", "exec", "execute", "executor", "run", "runner", "command", "commands", "cmd"),
        *("terminal", "console", "tty", "pty", "tmux", "process", "subprocess", "spawn", "script", "ssh", "cli"),
        *("system", "popen", "launch", "invoke", "session", "sandbox", "rshell", "job", "task"),
    )
)
# The ones whose every command line is a shell's, whatever else their name says.
_SHELLS: Final = frozenset(("shell", "sh", "bash", "zsh", "terminal", "console", "tty", "pty", "tmux", "ssh", "cli"))
# Tools whose language is another one.
_OTHER_LANGUAGES: Final = frozenset(
    (
        *("sql", "query", "queries", "redis", "mongo", "mongodb", "postgres", "postgresql", "pg", "mysql", "sqlite"),
        *("db", "database", "cypher", "sparql", "graphql", "python", "py", "node", "js", "ruby"),
        *("javascript", "code", "notebook", "cell", "jupyter", "lua", "kql", "promql", "editor", "edit", "playwright"),
    )
)
# Tools that only read begin with one of the first words and have none of the second. Servers name their tools, agents
# do not; a server that lies about its tool could do what it likes anyway.
_READING: Final = frozenset(
    (
        *("read", "get", "list", "search", "find", "view", "stat", "show", "cat", "head", "tail", "grep", "glob", "ls"),
        *("describe", "directory", "fetch", "count", "tree", "check", "diff", "compare", "info", "inspect", "lint"),
    )
)
_WRITING: Final = frozenset(
    (
        *("write", "edit", "create", "update", "set", "put", "append", "replace", "delete", "remove", "move", "copy"),
        *("rename", "save", "patch", "apply", "insert", "modify", "change", "fix", "run", "execute", "download"),
    )
)
_WEB_TOOLS: Final = frozenset(("api", "http", "https", "rest", "request", "endpoint", "webhook"))


class ArgumentKind(NamedTuple):
    """What the name of an argument says of its value."""

    path: bool  # everything in it is a path
    place: bool  # a bare relative path may be one
    other_path: bool  # a path that is no file
    host: bool
    command: bool
    script: bool  # a command line, if it looks like one
    command_list: bool
    program: bool
    arguments: bool
    prose: bool


class ToolKind(NamedTuple):
    """What the name of a tool says of its arguments."""

    runs: bool  # command lines
    other_language: bool
    web: bool  # requests to a web service
    reads: bool  # files, and changes none


@lru_cache(maxsize=2048)
def argument_kind(folded: str) -> ArgumentKind:
    """Return what a folded name says."""
    other = folded in _OTHER_PATHS
    return ArgumentKind(
        path=folded.endswith(_PATH_ENDS) and not other,
        place=folded in _PLACES,
        other_path=other,
        host=folded.endswith(_HOSTS),
        command="command" in folded or folded.startswith("cmd") or folded.endswith("cmd") or folded in _COMMANDS,
        script=folded in _SCRIPTS,
        command_list=folded in _LISTS_OF_COMMANDS,
        program=folded in _PROGRAMS,
        arguments=folded in _ARGUMENTS,
        prose=folded in _PROSE,
    )


@lru_cache(maxsize=2048)
def tool_kind(name: str) -> ToolKind:
    """Return what the name of a tool says."""
    # PowerShell is no shell of this kind; "rshell" and "myshell" are.
    plain = _POWERSHELL.sub(" ", name[:200])
    words = {word.lower() for word in _WORDS.findall(plain)}
    bare = plain.lower()
    shell = not _SHELLS.isdisjoint(words) or any(part in bare for part in ("shell", "bash", "terminal"))
    runs = shell or not _RUNNING.isdisjoint(words) or any(part in bare for part in ("exec", "command"))
    other = not _OTHER_LANGUAGES.isdisjoint(words) or plain != name[:200] or "sql" in bare
    return ToolKind(
        runs=runs and (shell or not other),
        other_language=other and not shell,
        web=not _WEB_TOOLS.isdisjoint(words),
        reads=_only_reads(plain, words),
    )


def _only_reads(name: str, words: set[str]) -> bool:
    # The verb may follow a prefix that names the server: `fs_read_file`, `files.list`.
    leading = [word.lower() for word in _WORDS.findall(name)[:2]]
    return not _READING.isdisjoint(leading) and _WRITING.isdisjoint(words)
