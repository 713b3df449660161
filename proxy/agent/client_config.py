"""Rewrites an MCP client's configuration so that its stdio servers run behind `interlock run`. Pure.

JSON (with comments), TOML and YAML. Only the command and args of a server are changed; comments, white space and all
else in the file stay as they are. What was written is parsed again: a server whose change does not read as it should,
or would change anything else, is left alone and named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from proxy.agent import config_json, config_toml, config_yaml
from proxy.agent.config_tree import Edit, Node, Tree, apply, find, outline
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class NoServersError(ConfigError):
    """A configuration that lists no servers."""


SANDBOX = "--sandbox="
MAX_NAME = 200
URL_KEYS = ("url", "serverUrl", "httpUrl", "uri")
BY_URL = "it is reached by URL, not started: start the client with `interlock exec` or `interlock confine`"
WRAPPED = "it is already wrapped"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a client lists its servers (`*` is any key), and the key of a server's command.

    With `types`, only members that have one of these as their `type` are servers.
    """

    path: tuple[str, ...]
    command: str = "command"
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a format is read, how it writes a string, and where its files list servers."""

    parse: Callable[[str], Tree]
    encode: Callable[[str], str]
    layouts: tuple[Layout, ...]


JSON = Syntax(
    config_json.parse,
    config_json.encode,
    (
        Layout(("mcpServers",)),  # Claude, Cursor, Windsurf, Gemini CLI, Cline
        Layout(("servers",)),  # VS Code's mcp.json
        Layout(("mcp", "servers")),  # VS Code's settings.json, and opencode 2
        Layout(("mcp",), types=("local", "remote")),  # opencode
        Layout(("context_servers",)),  # Zed
        Layout(("projects", "*", "mcpServers")),  # Claude Code
    ),
)
TOML = Syntax(config_toml.parse, config_toml.encode, (Layout(("mcp_servers",)),))  # Codex
YAML = Syntax(
    config_yaml.parse,
    config_yaml.encode,
    (Layout(("mcpServers",)), Layout(("extensions",), command="cmd")),  # Continue, Goose
)
SYNTAX = {".json": JSON, ".jsonc": JSON, ".toml": TOML, ".yaml": YAML, ".yml": YAML}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A changed configuration: its text, the servers that changed, and why others did not."""

    text: str
    changed: tuple[str, ...] = ()
    unchanged: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Server:
    """A server of a configuration. `label` also says in which of several lists it stands."""

    name: str
    label: str
    node: Node
    command_key: str

    @property
    def command(self) -> Node | None:
        return self.node.get(self.command_key)

    @property
    def args(self) -> Node | None:
        return self.node.get("args")

    def words(self) -> list[str]:
        """Return the command with its arguments. Raises ConfigError where they are something else."""
        for key in (self.command_key, "args"):
            if self.node.has(key) and self.node.get(key) is None:
                raise ConfigError(f"its {key!r} occurs twice")
        command, args = self.command, self.args
        assert command is not None
        program, arguments = command.text(), args.words() if args is not None else []
        if command.items:
            whole = command.words()
            if whole is None or args is not None:
                raise ConfigError("its command is not a list of strings")
            return whole
        if not program:
            raise ConfigError("its command is not a string")
        if arguments is None:
            raise ConfigError("its args are not a list of strings")
        return [program, *arguments]


def syntax_of(suffix: str) -> Syntax:
    """Return the syntax of files whose names end so; JSON where nothing is known."""
    return SYNTAX.get(suffix.lower(), JSON)


def wrap(text: str, interlock: Sequence[str], syntax: Syntax = JSON) -> Rewritten:
    """Put `interlock run` before the command of every stdio server. Raises ConfigError.

    `interlock` are the words that start it; a `--sandbox=…` among them becomes a flag of `run`.
    """
    changed: list[str] = []
    unchanged: dict[str, str] = {}
    for position, server in enumerate(_servers(syntax.parse(text), syntax)):
        try:
            reason = _why_not(server)
            if reason is None:
                text = _rewrite(text, syntax, position, interlock)
                changed.append(server.label)
        except ConfigError as error:
            reason = str(error)
        if reason is not None:
            unchanged[server.label] = reason
    return Rewritten(text, tuple(changed), unchanged)


def unwrap(text: str, syntax: Syntax = JSON) -> Rewritten:
    """Remove `interlock run` from every server that has it. Raises ConfigError."""
    changed: list[str] = []
    unchanged: dict[str, str] = {}
    for position, server in enumerate(_servers(syntax.parse(text), syntax)):
        if prefix_of(server) is None:
            continue
        try:
            text = _rewrite(text, syntax, position, None)
            changed.append(server.label)
        except ConfigError as error:
            unchanged[server.label] = str(error)
    return Rewritten(text, tuple(changed), unchanged)


def prefixes(text: str, syntax: Syntax = JSON) -> list[list[str]]:
    """Return the commands of Interlock that servers are wrapped with, each once. Raises ConfigError."""
    found: list[list[str]] = []
    for server in _servers(syntax.parse(text), syntax):
        prefix = prefix_of(server)
        if prefix is not None and prefix not in found:
            found.append(prefix)
    return found


def prefix_of(server: Server) -> list[str] | None:
    """Return the words before `run` in a server that was wrapped as here, and its `--sandbox`; None if it was not."""
    try:
        words = server.words() if server.command is not None else []
    except ConfigError:
        return None
    for prefix in (words[:1], words[:3]):
        rest = words[len(prefix) :]
        flags = [word for word in rest[3:4] if word.startswith(SANDBOX)]
        end = 3 + len(flags)
        if _is_interlock(prefix) and rest[:2] == ["run", "--server-name"] and rest[end : end + 1] == ["--"]:
            return [*prefix, *flags] if rest[end + 1 :] else None
    return None


def _is_interlock(prefix: Sequence[str]) -> bool:
    return prefix[1:] == ["-m", "proxy.cli"] or [word.rpartition("/")[2] for word in prefix] == ["interlock"]


def _servers(tree: Tree, syntax: Syntax) -> list[Server]:
    found = [server for layout in syntax.layouts for server in _at(tree.root, layout)]
    if not found:
        paths = ", ".join(".".join(layout.path) for layout in syntax.layouts)
        raise NoServersError(f"no MCP servers found; looked under {paths}")
    return found


def _at(root: Node, layout: Layout) -> Iterator[Server]:
    for place, listing in _listings(root, layout.path):
        where = f" in {place}" if place else ""
        if listing.items is not None:
            named = [(_name(item, number), item) for number, item in enumerate(listing.items, 1)]
        else:
            named = [(member.key, member.node) for member in listing.members or ()]
        for name, node in named:
            kind = node.get("type")
            if not layout.types or (kind is not None and kind.value in layout.types):
                yield Server(name, name + where, node, layout.command)


def _listings(root: Node, path: Sequence[str]) -> Iterator[tuple[str, Node]]:
    if "*" not in path:
        yield from (("", node) for node in find(root, path))
        return
    star = path.index("*")
    for above in find(root, path[:star]):
        for member in above.members or ():
            yield from ((member.key, node) for node in find(member.node, path[star + 1 :]))


def _name(item: Node, number: int) -> str:
    name = item.get("name")
    return (name.text() if name is not None else None) or f"server {number}"


def _why_not(server: Server) -> str | None:
    """Return why a server is not wrapped; None if it is. Raises ConfigError for an odd one."""
    if server.node.members is None:
        raise ConfigError("it is no object with a command")
    if not server.node.has(server.command_key):
        return BY_URL if any(server.node.has(key) for key in URL_KEYS) else "it has no command"
    if _runs_interlock(server.words()):
        return WRAPPED
    if not server.name.isprintable() or len(server.name) > MAX_NAME or server.name in ("", "--"):
        raise ConfigError("its name cannot be given to `interlock run`")
    return None


def _runs_interlock(words: Sequence[str]) -> bool:
    # Also one written by hand or started by another program (`uvx interlock run`), so that nothing is wrapped twice.
    ours = words[: words.index("--")] if "--" in words else words
    names = [word.rpartition("/")[2] for word in ours]
    return any(name in ("interlock", "proxy.cli") and following == "run" for name, following in pairwise(names))


def _rewrite(text: str, syntax: Syntax, position: int, interlock: Sequence[str] | None) -> str:
    """Wrap the server at a position; unwrap it if `interlock` is None. Raises ConfigError if that goes wrong."""
    tree = syntax.parse(text)
    servers = _servers(tree, syntax)
    server = servers[position]
    before = server.words()
    if interlock is not None:
        flags = [word for word in interlock if word.startswith(SANDBOX)]
        ours = [word for word in interlock if word not in flags]
        front = [*ours, "run", "--server-name", server.name, *flags, "--"]
        edits, expected = _wrapping(tree, syntax, server, front), [*front, *before]
    else:
        gone = len(prefix_of(server) or ()) + 4
        edits, expected = _unwrapping(syntax, server, gone), before[gone:]
    after = apply(text, edits)
    if not _differs_only_in(tree, syntax, position, after, expected):
        raise ConfigError("it cannot be changed without changing something else; change it by hand")
    return after


def _differs_only_in(tree: Tree, syntax: Syntax, position: int, after: str, expected: list[str]) -> bool:
    """Check what was written: one server has the command that it should have, and all else is as it was."""
    try:
        new = syntax.parse(after)
        outlines = []
        for each in (tree, new):
            server = _servers(each, syntax)[position]
            outlines.append(outline(each.root, [node for node in (server.command, server.args) if node is not None]))
        return outlines[0] == outlines[1] and _servers(new, syntax)[position].words() == expected
    except (ConfigError, IndexError):
        return False


def _wrapping(tree: Tree, syntax: Syntax, server: Server, front: list[str]) -> list[Edit]:
    command, args = server.command, server.args
    assert command is not None
    if command.items is not None:
        return [_put_first(tree, syntax, command, front)]
    program = tree.text[command.start : command.end]
    first: Edit = (command.start, command.end, syntax.encode(front[0]))
    # The program keeps its spelling, which may have escapes, unless it has none in quotes.
    spelt = program if program[:1] in ('"', "'") and program.count("\n") == 0 else syntax.encode(command.value)
    if args is not None:
        return [first, _put_first(tree, syntax, args, front[1:], spelt)]
    member = next(each for each in server.node.members or () if each.node is command)
    key, spelling = tree.text[member.key_start : command.start], server.command_key
    before, _, behind = key.rpartition(spelling)
    listed = ", ".join([*map(syntax.encode, front[1:]), spelt])
    added = f"{_between_members(tree, server.node, member.key_start)}{before}args{behind}[{listed}]"
    return [(command.start, command.end, first[2] + added)]


def _between_members(tree: Tree, server: Node, key_start: int) -> str:
    """Return what stands between the members of a server, as the text lays them out."""
    before = tree.text[:key_start]
    if server.on_lines:
        # As many columns: the first member of a YAML list's item stands behind its dash.
        return _newline(tree) + " " * (key_start - before.rfind("\n") - 1)
    indent = before[len(before.rstrip(" \t\r\n")) :]
    return f",{indent}" if "\n" in indent else ", "


def _newline(tree: Tree) -> str:
    return "\r\n" if "\r\n" in tree.text else "\n"


def _put_first(tree: Tree, syntax: Syntax, listing: Node, words: Sequence[str], *spelt: str) -> Edit:
    """Return the edit that puts words at the beginning of a list, in its layout."""
    assert listing.items is not None
    encoded = [*map(syntax.encode, words), *spelt]
    if not listing.items:
        return listing.start + 1, listing.start + 1, ", ".join(encoded)
    first = listing.items[0].start
    separator = _between_items(tree, listing, first)
    return first, first, separator.join([*encoded, ""])


def _between_items(tree: Tree, listing: Node, first: int) -> str:
    if listing.on_lines:
        dash = tree.text.rindex("-", 0, first)
        column = dash - (tree.text.rfind("\n", 0, dash) + 1)
        return _newline(tree) + " " * column + tree.text[dash:first]
    gap = tree.plain[listing.start + 1 : first]
    if "\n" not in gap:
        return ", "
    space = gap[gap.rindex("\n") :]
    return f",\r{space}" if "\r\n" in gap else f",{space}"


def _unwrapping(syntax: Syntax, server: Server, gone: int) -> list[Edit]:
    """Return the edits that remove the first `gone` words of a server's command."""
    command, args = server.command, server.args
    assert command is not None
    if command.items is not None:
        return [_drop_first(command, gone)]
    assert args is not None
    assert args.items is not None
    # The words before are the command itself and `gone - 1` of the args; the next one is the command again.
    program = syntax.encode(args.items[gone - 1].value)
    return [(command.start, command.end, program), _drop_first(args, gone)]


def _drop_first(listing: Node, count: int) -> Edit:
    items = listing.items or []
    if count < len(items):
        return items[0].start, items[count].start, ""
    end = items[-1].end if listing.on_lines else listing.end
    return listing.start, end, "[]"
