"""What a server was seen to do, in the form that a profile is learned from. Pure.

A probe's observations and the trail's events become the same acts: what was read, written, started and reached, by
which tool, and how often.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from proxy.learn.generalise import is_below
from proxy.trace.argument_hints import ArgumentHints, hints_in
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

type Kind = Literal["read", "write", "exec", "reach", "socket"]
STARTUP = "start-up"
MISSING = frozenset({"ENOENT", "ENOTDIR", "ENXIO", "EEXIST"})
KINDS: dict[str, Kind] = {
    Capability.FS_READ: "read",
    Capability.FS_WRITE: "write",
    Capability.FS_DELETE: "write",
    Capability.PROC_EXEC: "exec",
    Capability.NET_CONNECT: "reach",
    Capability.NET_DNS: "reach",
    Capability.IPC_UNIX: "socket",
}
# The C library asks these for names; without them it does without.
IGNORED_SOCKETS = ("/var/run/nscd/socket", "/run/nscd/socket", "/dev/log")
# A process that starts its own program again.
_ITSELF = re.compile(r"/proc/(?:self|thread-self|[0-9]+)/exe")


@dataclass(slots=True)
class Act:
    """One thing that was done: to a path, a program or `host:port`; `by` counts it for each tool."""

    kind: Kind
    target: str
    by: Counter[str] = field(default_factory=Counter)
    blamed: str | None = None  # the rule of a probe that calls it bad
    from_arguments: bool = False  # every time, the call's arguments named it

    @property
    def count(self) -> int:
        return self.by.total()


class Acts:
    """Acts by kind and target, each once."""

    def __init__(self) -> None:
        self._acts: dict[tuple[Kind, str], Act] = {}

    def __iter__(self) -> Iterator[Act]:
        return iter(self._acts.values())

    def __len__(self) -> int:
        return len(self._acts)

    def add(
        self, kind: Kind, target: str, tool: str, *, count: int = 1, blamed: str | None = None, named: bool = False
    ) -> None:
        """Count an act. One that was blamed once stays blamed."""
        act = self._acts.get((kind, target))
        if act is None:
            act = self._acts[kind, target] = Act(kind, target, from_arguments=named)
        act.by[tool] += count
        act.blamed = act.blamed or blamed
        act.from_arguments = act.from_arguments and named


def acts_of_events(events: Iterable[dict[str, Any]]) -> Acts:
    """Return the acts in a trail's events of kind `observed`; anything of another form is left out.

    An event has the `arguments` of its call, where these are known.
    """
    acts = Acts()
    for event in events:
        detail = event.get("detail")
        seen = detail.get("observations") if isinstance(detail, dict) else None
        tool, hints = event.get("tool"), hints_in(event.get("arguments"))
        for each in seen if isinstance(seen, list) else ():
            if isinstance(each, dict):
                _add_observation(acts, each, tool if isinstance(tool, str) and tool else STARTUP, hints)
    return acts


def _add_observation(acts: Acts, seen: dict[str, Any], tool: str, hints: ArgumentHints) -> None:
    kind, count = KINDS.get(str(seen.get("capability"))), seen.get("count")
    if kind is None or seen.get("error") in MISSING:
        return
    target = target_of(kind, str(seen.get("action")), seen.get("path"), seen.get("peer"), seen.get("name"))
    if target is not None:
        named = _is_named(kind, target, hints)
        acts.add(kind, target, tool, count=count if isinstance(count, int) and count > 0 else 1, named=named)


def _is_named(kind: Kind, target: str, hints: ArgumentHints) -> bool:
    if kind != "reach":
        return any(text.startswith("/") and is_below(target, text) for text in hints.texts)
    host, colon, _ = target.rpartition(":")
    host = host if colon else target
    # The host itself alone: an argument such as "com" names no host below it.
    return any(host in (text, f"www.{text}") for text in map(str.lower, hints.texts))


def target_of(kind: Kind, action: str, path: Any, peer: Any, name: Any) -> str | None:
    """Return what a profile would have to name for an act; None where nothing has to be named."""
    if kind == "reach":
        named = name if isinstance(name, str) and name else peer
        # Data that is sent to nobody in particular, and sockets without a peer, cannot be granted.
        return named.lower().rstrip(".") if isinstance(named, str) and action != "raw socket" else None
    if not isinstance(path, str) or not path:
        return None
    if kind == "socket":
        return path if action in ("connect", "send") and path not in IGNORED_SOCKETS else None
    if not path.startswith("/") or (kind == "exec" and _ITSELF.fullmatch(path)):
        return None
    # To delete or rename a file is to change its folder.
    changed = action in ("unlink", "rename", "rmdir", "link", "symlink", "mkdir", "mknod") and kind == "write"
    return posixpath.dirname(path) if changed else path
