"""Compares two profiles by what they permit: what a new one needs more, and what less. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.sandbox.path_globs import compile_path
from proxy.sandbox.profile import SandboxProfile, host_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATHS = ("read", "write", "secrets", "sockets")
NAMES = ("exec", "env")
MODES = ("learn", "shadow", "enforce")
VIOLATIONS = ("tell", "withhold", "end")


@dataclass(frozen=True, slots=True)
class Difference:
    """One line that is in one profile, and that the other does not cover. `more`: the new profile permits it."""

    section: str
    value: str
    more: bool


def compare(old: SandboxProfile, new: SandboxProfile) -> tuple[Difference, ...]:
    """Return what differs; both profiles with all that they extend. Lines that permit the same are no difference."""
    return (*_more(old, new, more=True), *_more(new, old, more=False))


def _more(old: SandboxProfile, new: SandboxProfile, *, more: bool) -> Iterator[Difference]:
    """Yield what `new` permits and `old` does not."""
    for name in PATHS:
        covers = [compile_path(_canonical(line)) for line in _permitted(old, name)]
        wanted = (line for line in getattr(new, name) if not _is_covered(_canonical(line), covers))
        yield from (Difference(name, line, more) for line in wanted)
    for name in NAMES:
        yield from (Difference(name, line, more) for line in getattr(new, name) if line not in getattr(old, name))
    # What one hides and the other does not, the other shows.
    yield from (Difference("hide", f"no longer {line}", more) for line in old.hide if line not in new.hide)
    yield from (Difference("network", host, more) for host in _new_hosts(old, new))
    yield from (Difference(name, value, more) for name, value in _looser(old, new))


def _permitted(profile: SandboxProfile, name: str) -> Sequence[str]:
    # What may be written may be read; a secret is opened by `secrets` alone.
    return [*profile.read, *profile.write] if name == "read" else list(getattr(profile, name))


def _canonical(line: str) -> str:
    """Return a line so that a variable looks like a folder."""
    return f"$HOME{line[1:]}" if line == "~" or line.startswith("~/") else line.replace("${", "$").replace("}", "")


def _is_covered(line: str, covers: Sequence[Callable[[str], bool]]) -> bool:
    plain = line.removesuffix("/**")
    return any(test(plain) for test in covers)


def _new_hosts(old: SandboxProfile, new: SandboxProfile) -> Iterator[str]:
    if old.hosts is None:
        return
    if new.hosts is None:
        yield "any"
        return
    for entry in new.hosts:
        host, _, port = entry.rpartition(":") if entry.rpartition(":")[2].isdigit() else (entry, "", "")
        ports = (int(port),) if port else (80, 443)
        if entry not in old.hosts and not all(host_fits(host, each, old.hosts) for each in ports):
            yield entry


def _looser(old: SandboxProfile, new: SandboxProfile) -> Iterator[tuple[str, str]]:
    """Yield the single values by which `new` is looser: its mode, its limits, tools that are not bound any more."""
    if MODES.index(new.mode or "enforce") < MODES.index(old.mode or "enforce"):
        yield "mode", str(new.mode)
    if VIOLATIONS.index(new.violation) < VIOLATIONS.index(old.violation):
        yield "on_violation", new.violation
    for name, limit in old.limits.model_dump(exclude_none=True).items():
        now = getattr(new.limits, name)
        if now is None or now > limit:
            yield f"limits.{name}", "no limit" if now is None else str(now)
    for tool, bound in old.tools.items():
        for name in ("files", "network"):
            if getattr(bound, name) == "from arguments" and getattr(new.tool(tool), name) != "from arguments":
                yield f"tools.{tool}", f"{name} no longer from arguments"
