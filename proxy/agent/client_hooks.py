"""Puts a hook that asks `interlock policy decide` into a client's settings, and takes it out again. Pure.

The settings are JSON, with comments. Nothing else in them changes.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from proxy.agent import config_json
from proxy.agent.client_config import Rewritten
from proxy.agent.clients import COMMAND, Hook
from proxy.agent.config_tree import Edit, Node, Tree, apply
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OURS = ("policy", "decide", "--stdin", "--format")


def install(text: str, interlock: Sequence[str], hook: Hook) -> Rewritten:
    """Add the hook where it is missing. Raises ConfigError where the settings are not as documented."""
    changed: list[str] = []
    unchanged: dict[str, str] = {}
    entry = _entry(hook, interlock)
    for path in hook.paths:
        name = f"{path[-1]} hook"
        tree = config_json.parse(text)
        if any(_is_ours(item, tree) for item in _listed(tree.root, path)):
            unchanged[name] = "it is already there"
            continue
        after = apply(text, [_insertion(tree, path, entry)])
        if json.loads(config_json.parse(after).plain) != _merged(json.loads(tree.plain), path, entry):
            raise ConfigError(f"the {name} cannot be added without changing something else")
        text = after
        changed.append(name)
    return Rewritten(text, tuple(changed), unchanged)


def remove(text: str, hook: Hook) -> Rewritten:
    """Remove every hook that `install` added. Raises ConfigError."""
    changed: list[str] = []
    for path in hook.paths:
        tree = config_json.parse(text)
        items = list(_listed(tree.root, path))
        ours = [item for item in items if _is_ours(item, tree)]
        if ours:
            text = apply(text, [_removal(items, item) for item in ours])
            changed.append(f"{path[-1]} hook")
    return Rewritten(text, tuple(changed))


def commands(text: str, hook: Hook) -> list[list[str]]:
    """Return the commands of Interlock in the hooks that `install` added, each once. Raises ConfigError."""
    tree = config_json.parse(text)
    found: list[list[str]] = []
    for path in hook.paths:
        for item in _listed(tree.root, path):
            for words in _calls(json.loads(tree.plain[item.start : item.end])):
                if words[: -len(_OURS) - 1] not in found:
                    found.append(words[: -len(_OURS) - 1])
    return found


def _entry(hook: Hook, interlock: Sequence[str]) -> Any:
    command = shlex.join([*interlock, *_OURS, hook.format])
    return json.loads(json.dumps(hook.entry).replace(COMMAND, json.dumps(command)[1:-1]))


def _listed(root: Node, path: Sequence[str]) -> Iterator[Node]:
    """Yield the entries of the list at a path. Raises ConfigError if something else is there."""
    node: Node | None = root
    for key in path:
        if node is None or not node.has(key):
            return
        node = node.get(key)
        if node is None:
            raise ConfigError(f"the key {key!r} occurs twice in one object; remove one of them first")
    if node is None or node.items is None:
        raise ConfigError(f"{'.'.join(path)} is not a list")
    yield from node.items


def _is_ours(item: Node, tree: Tree) -> bool:
    return any(True for _ in _calls(json.loads(tree.plain[item.start : item.end])))


def _calls(entry: Any) -> Iterator[list[str]]:
    """Yield the words of each command in an entry that asks Interlock."""
    if isinstance(entry, dict):
        command = entry.get("command")
        if isinstance(command, str) and (words := _words(command.removesuffix(" || exit 2"))):
            yield words
        inner = entry.get("hooks")
        for each in inner if isinstance(inner, list) else ():
            yield from _calls(each)


def _words(command: str) -> list[str] | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return words if tuple(words[-len(_OURS) - 1 : -1]) == _OURS else None


def _insertion(tree: Tree, path: Sequence[str], entry: Any) -> Edit:
    """Return the edit that adds an entry to the list at a path, with the objects on the way that are missing."""
    node, depth = tree.root, 0
    while depth < len(path) and (found := node.get(path[depth])) is not None:
        if found.members is None and found.items is None:
            raise ConfigError(f"{'.'.join(path[: depth + 1])} is neither an object nor a list")
        node, depth = found, depth + 1
    added: Any = entry
    if depth == len(path):
        return _into(tree, node, json.dumps(added, indent=2, ensure_ascii=False), last=True)
    if node.members is None:
        raise ConfigError(f"{'.'.join(path[:depth])} is not an object")
    added = [entry]
    for key in reversed(path[depth + 1 :]):
        added = {key: added}
    shown = f"{config_json.encode(path[depth])}: {json.dumps(added, indent=2, ensure_ascii=False)}"
    return _into(tree, node, shown, last=False)


def _into(tree: Tree, node: Node, shown: str, *, last: bool) -> Edit:
    """Return the edit that puts what is shown into an object or list: as its last or its first part."""
    ends = [each.node.end for each in node.members or ()] or [each.end for each in node.items or ()]
    starts = [each.key_start for each in node.members or ()] or [each.start for each in node.items or ()]
    before = tree.text[: starts[0] if starts else node.start]
    line = before[before.rfind("\n") + 1 :]
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    newline = "\r\n" if "\r\n" in tree.text else "\n"
    if not starts:
        inside = shown.replace("\n", f"{newline}{indent}  ")
        empty = not tree.text[node.start + 1 : node.end - 1].strip()  # there may be a comment
        end, closing = (node.end - 1, newline + indent) if empty else (node.start + 1, "")
        return node.start + 1, end, f"{newline}{indent}  {inside}{closing}"
    gap = newline + indent if not line.strip(" \t") else " "
    shown = shown.replace("\n", f"{newline}{indent}")
    return (ends[-1], ends[-1], f",{gap}{shown}") if last else (starts[0], starts[0], f"{shown},{gap}")


def _merged(value: Any, path: Sequence[str], entry: Any) -> Any:
    inner = value
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner.setdefault(path[-1], []).append(entry)
    return value


def _removal(items: Sequence[Node], item: Node) -> Edit:
    """Return the edit that removes an item of a list with the comma beside it."""
    number = next(number for number, each in enumerate(items) if each is item)
    if number:
        return items[number - 1].end, item.end, ""
    return item.start, items[1].start if len(items) > 1 else item.end, ""
