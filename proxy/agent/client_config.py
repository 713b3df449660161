"""Rewrites an MCP client's configuration so that its stdio servers run behind `interlock run`. Pure.

Only the command and args of a server are replaced; comments, white space and all else in the file stay as they are.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Where clients list their servers; `*` is any key.
SERVER_PATHS = (
    ("mcpServers",),  # Claude, Cursor, Windsurf, Cline
    ("servers",),  # VS Code's mcp.json
    ("mcp", "servers"),  # VS Code's settings.json
    ("context_servers",),  # Zed
    ("projects", "*", "mcpServers"),  # Claude Code
)
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = r'"(?:[^"\\]|\\.)*+"'
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_DECODER = json.JSONDecoder()

type Edit = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a JSON object: its value, and the positions of key and value in the text."""

    key: str
    value: Any
    key_start: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A changed configuration: its text, the servers that changed, and why others did not."""

    text: str
    changed: tuple[str, ...] = ()
    unchanged: dict[str, str] = field(default_factory=dict[str, str])


def wrap(text: str, interlock: Sequence[str]) -> Rewritten:
    """Put `interlock run` before the command of every stdio server. Raises ConfigError."""
    edits: list[Edit] = []
    changed: list[str] = []
    unchanged: dict[str, str] = {}
    plain = _without_comments(text)
    for server in _servers(plain):
        reason = _why_not(server)
        if reason is None:
            command = [server.value["command"], *server.value.get("args", [])]
            edits += _edit(text, plain, server, [*interlock, "run", "--server-name", server.key, "--", *command])
            changed.append(server.key)
        else:
            unchanged[server.key] = reason
    return Rewritten(_apply(text, edits), tuple(changed), unchanged)


def unwrap(text: str) -> Rewritten:
    """Remove `interlock run` from every server that has it. Raises ConfigError."""
    plain = _without_comments(text)
    wrapped = [(server, inner) for server in _servers(plain) if (inner := _wrapped(server.value)) is not None]
    edits = [edit for server, inner in wrapped for edit in _edit(text, plain, server, inner)]
    return Rewritten(_apply(text, edits), tuple(server.key for server, _ in wrapped))


def _without_comments(text: str) -> str:
    """Blank out comments, trailing commas and a byte order mark, which many clients accept."""
    # Spaces of the same length: positions in the result are positions in the file.
    bare = _COMMENT.sub(_blank, text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text)
    return _TRAILING_COMMA.sub(_blank, bare)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])


def _servers(text: str) -> Iterator[Member]:
    _check(text)
    found = [server for path in SERVER_PATHS for server in _at(text, path)]
    if not found:
        paths = ", ".join(".".join(path) for path in SERVER_PATHS)
        raise ConfigError(f"no MCP servers found; looked under {paths}")
    yield from found


def _at(text: str, path: Sequence[str]) -> Iterator[Member]:
    starts = [_skip(text, 0)]
    for key in path:
        inside = [member for start in starts for member in _members(text, start)]
        starts = [m.start for m in inside if key in (m.key, "*") and isinstance(m.value, dict)]
    for start in starts:
        yield from _members(text, start)


def _check(text: str) -> None:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"it is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"it contains {type(value).__name__}, not an object with servers")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, member in pairs:
        # Clients disagree on which of two equal keys counts: wrapping one could leave the other running unwatched.
        if key in value:
            raise ConfigError(f"the key {key!r} occurs twice in one object; remove one of them first")
        value[key] = member
    return value


def _members(text: str, start: int) -> Iterator[Member]:
    """Yield the members of the object at `start`, which must be well-formed."""
    position = _skip(text, start + 1)
    while text[position] != "}":
        key_start = position
        key, position = _DECODER.raw_decode(text, key_start)
        value_start = _skip(text, _skip(text, position) + 1)
        value, end = _DECODER.raw_decode(text, value_start)
        yield Member(key, value, key_start, value_start, end)
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _why_not(server: Member) -> str | None:
    """Return why a server is not wrapped; None if it is. Raises ConfigError."""
    value = server.value
    if not isinstance(value, dict):
        raise ConfigError(f"server {server.key!r} is {type(value).__name__}, not an object with a command")
    if "command" not in value:
        remote = any(key in value for key in ("url", "serverUrl", "httpUrl"))
        return "it is reached by URL; send it through `interlock up`" if remote else "it has no command"
    command, arguments = value["command"], value.get("args", [])
    if not isinstance(command, str) or not command:
        raise ConfigError(f"server {server.key!r} has a command that is not a string")
    if not (isinstance(arguments, list) and all(isinstance(argument, str) for argument in arguments)):
        raise ConfigError(f"server {server.key!r} has args that are not a list of strings")
    return "it is already wrapped" if _runs_interlock([command, *arguments]) else None


def _runs_interlock(words: Sequence[str]) -> bool:
    # Also one written by hand or started by another program (`uvx interlock run`), so that nothing is wrapped twice.
    ours = words[: words.index("--")] if "--" in words else words
    names = [word.rpartition("/")[2] for word in ours]
    return any(name in ("interlock", "proxy.cli") and following == "run" for name, following in pairwise(names))


def _wrapped(value: Any) -> list[str] | None:
    """Return the command that was wrapped; None if it is not wrapped."""
    if not isinstance(value, dict):
        return None
    command, arguments = value.get("command"), value.get("args")
    if not isinstance(command, str) or not isinstance(arguments, list) or "--" not in arguments:
        return None
    ours, inner = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    if ours[:2] == ["-m", "proxy.cli"]:
        ours, command = ours[2:], "interlock"
    is_ours = command.rpartition("/")[2] == "interlock" and ours[:2] == ["run", "--server-name"]
    return inner if is_ours and inner else None


def _edit(text: str, plain: str, server: Member, words: Sequence[str]) -> Iterator[Edit]:
    """Yield the edits that set a server's command and args to `words`. `plain` is the text without comments."""
    members = {member.key: member for member in _members(plain, server.start)}
    command, arguments = members["command"], members.get("args")
    first, rest = _encode(words[0]), list(words[1:])
    if arguments is not None:
        yield command.start, command.end, first
        yield arguments.start, arguments.end, _encode_list(rest, plain[arguments.start : arguments.end])
    elif rest:
        indent = text[: command.key_start][len(text[: command.key_start].rstrip(" \t\r\n")) :]
        colon = plain[command.key_start : command.start].rpartition(":")[2]
        yield command.start, command.end, f'{first},{indent}"args":{colon}{_encode_list(rest, "[]")}'
    else:
        yield command.start, command.end, first


def _encode(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


def _encode_list(words: Sequence[str], like: str) -> str:
    """Encode a list in the layout of another list: on one line, or one line per item."""
    encoded = [_encode(word) for word in words]
    lines = re.fullmatch(r"\[(\s*\n[ \t]*)\S.*?(\s*\n[ \t]*)\]", like, re.DOTALL)
    if lines is None:
        return f"[{', '.join(encoded)}]"
    before, after = (space.lstrip(" \t") for space in lines.groups())
    return f"[{before}{f',{before}'.join(encoded)}{after}]"


def _apply(text: str, edits: Sequence[Edit]) -> str:
    # From the end, so that earlier positions stay valid.
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
