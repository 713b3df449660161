"""`interlock setup`: puts the MCP clients of this machine behind the proxy, and takes them out again."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.agent.client_config import BY_URL, NoServersError, syntax_of
from proxy.agent.clients import CLIENTS, Client, places
from proxy.commands.config_files import (
    BACKUP,
    Change,
    HookRewriter,
    Rewriter,
    ServerRewriter,
    interlock_words,
    plan,
    plan_undo,
)
from proxy.commands.options import AsJson
from proxy.commands.terminal import count, print_diff, print_json_lines, print_note, printable
from proxy.errors import ConfigError

EPILOG = """
Examples:
  interlock setup --dry-run
  interlock setup --yes
  interlock setup cursor codex --yes
  interlock setup claude-code --hooks --yes
  interlock setup --undo --yes
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A file of a client's that may be changed. `base` is what a file begins with that need not exist."""

    client: Client
    path: Path
    rewriter: Rewriter
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of a file, or why nothing does."""

    target: Target
    change: Change | None = None
    problem: str | None = None

    @property
    def acts(self) -> bool:
        return self.change is not None and self.change.after != self.change.before

    def data(self, *, applied: bool) -> dict[str, Any]:
        """Return it as a JSON object."""
        change = self.change
        return {
            "client": self.target.client.id,
            "file": str(self.target.path),
            "changed": list(change.changed) if change else [],
            "unchanged": _reasons(self) if change else {},
            "error": self.problem,
            "applied": applied and self.acts,
        }


def setup(
    clients: Annotated[
        list[str] | None, typer.Argument(help=f"Only these: {', '.join(client.id for client in CLIENTS)}.")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without making them.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take Interlock out of the clients again.")] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Also ask the policy before Claude Code and Cursor use their own tools.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make the changes without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put the MCP clients of this machine behind the proxy, or take them out.

    Finds the configuration files of known clients, of this user and of the project in this folder.
    Shows the changes, asks, and makes them: each stdio server is started by `interlock run`. Servers
    that are reached by URL, and odd ones, are named. --undo restores the files byte for byte; of a
    file that was edited since, it changes back only what setup changed.

    Exit code: 0 success, 1 a file could not be read or changed.
    """
    chosen = _chosen(clients or [])
    planned = [_plan(target, undo=undo) for target in _targets(chosen, hooks=hooks or undo)]
    found = [each for each in planned if each is not None]
    acts = [each for each in found if each.acts]
    if not as_json:
        _show(found)
    apply = bool(acts) and not dry_run and (yes or (not as_json and _agreed(len(acts))))
    done = [_applied(each) if apply and each.acts else each for each in found]
    if as_json:
        print_json_lines(each.data(applied=apply and each.problem is None) for each in done)
    else:
        _conclude(found, acts, applied=apply, dry_run=dry_run, undo=undo)
    raise typer.Exit(1 if any(each.problem for each in done) else 0)


def _chosen(ids: Sequence[str]) -> list[Client]:
    known = {client.id: client for client in CLIENTS}
    for each in ids:
        if each not in known:
            raise ConfigError(f"there is no client {each!r}; known are {', '.join(known)}")
    return [known[each] for each in dict.fromkeys(ids)] or list(CLIENTS)


def _targets(clients: Sequence[Client], *, hooks: bool) -> Iterator[Target]:
    where = places(str(Path.home()), os.environ, macos=sys.platform == "darwin")
    escaped = {name: glob.escape(folder) for name, folder in where.items()}
    seen: set[Path] = set()
    for client in clients:
        patterns = [template.format_map(escaped) for template in client.files]
        patterns += [str(Path(glob.escape(str(Path.cwd()))) / name) for name in client.project]
        for found in (name for pattern in patterns for name in sorted(glob.glob(pattern))):  # noqa: PTH207  absolute
            path = Path(found).resolve()
            if path not in seen and path.is_file():
                seen.add(path)
                yield Target(client, path, ServerRewriter(syntax_of(path.suffix)))
        if hooks and client.hook is not None:
            path = Path(client.hook.file.format_map(where)).resolve()
            # The client's folder is there if it is installed; its settings may not be.
            if path.parent.is_dir():
                yield Target(client, path, HookRewriter(client.hook), client.hook.base)


def _plan(target: Target, *, undo: bool) -> Planned | None:
    """Return what becomes of a file; None if it is none of our concern."""
    try:
        if not undo:
            return Planned(target, plan(target.path, target.rewriter, interlock_words(), target.base))
        if not target.path.exists():
            return None
        change = plan_undo(target.path, target.rewriter, target.base)
        kept = target.path.with_name(target.path.name + BACKUP)
        return Planned(target, change) if change.changed or change.unchanged or kept.exists() else None
    except NoServersError:
        return None
    except ConfigError as error:
        return Planned(target, problem=str(error))
    except OSError as error:
        return Planned(target, problem=error.strerror or str(error))


def _applied(planned: Planned) -> Planned:
    assert planned.change is not None
    try:
        planned.change.apply()
    except ConfigError as error:
        return _failed(planned, str(error))
    except OSError as error:
        return _failed(planned, error.strerror or str(error))
    return planned


def _failed(planned: Planned, why: str) -> Planned:
    print_note(f"{planned.target.path}: not changed: {why}")
    return Planned(planned.target, planned.change, why)


def _reasons(planned: Planned) -> dict[str, str]:
    assert planned.change is not None
    remote = f"it is reached by URL, not started: {planned.target.client.for_remote}"
    return {name: remote if why == BY_URL else why for name, why in planned.change.unchanged}


def _show(found: Sequence[Planned]) -> None:
    for planned in found:
        print_note(printable(f"{planned.target.client.title}: {planned.target.path}"))
        if planned.change is None:
            print_note(printable(f"  not changed: {planned.problem}"))
            continue
        verb = "to be taken out" if planned.change.restores else "to be put behind Interlock"
        for name in planned.change.changed:
            print_note(printable(f"  {name}: {verb}"))
        for name, why in _reasons(planned).items():
            print_note(printable(f"  {name}: not changed, {why}"))
        print_diff(planned.change.difference())


def _agreed(files: int) -> bool:
    """Ask whether to make the changes; without a terminal nobody can answer."""
    if not sys.stdin.isatty():
        return False
    return typer.confirm(f"Change {count(files, 'file')}?", err=True)


def _conclude(found: Sequence[Planned], acts: Sequence[Planned], *, applied: bool, dry_run: bool, undo: bool) -> None:
    if not found:
        print_note(
            "No file of these clients has anything to undo." if undo else "No client with MCP servers was found."
        )
    elif not acts:
        print_note("Nothing to change.")
    elif dry_run:
        print_note("Dry run: nothing was changed.")
    elif not applied:
        print_note("Nothing was changed. Run it again with --yes to make these changes.")
    elif undo:
        print_note(f"Changed {count(len(acts), 'file')}. Restart the clients to apply it.")
    else:
        print_note(f"Changed {count(len(acts), 'file')}. Restart the clients to apply it.")
        print_note("`interlock setup --undo` takes it back.")
