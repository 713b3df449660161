"""`interlock wrap`: changes an MCP client's configuration so that its stdio servers run behind the proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.agent.client_config import SANDBOX, syntax_of
from proxy.commands.config_files import Change, ServerRewriter, interlock_words, plan, plan_undo
from proxy.commands.options import AsJson
from proxy.commands.terminal import print_diff, print_json_lines, print_note
from proxy.errors import ConfigError

EPILOG = """
Examples:
  interlock wrap ~/.cursor/mcp.json --dry-run
  interlock wrap ~/.cursor/mcp.json
  interlock wrap ~/.cursor/mcp.json --sandbox
  interlock wrap ~/.cursor/mcp.json --undo
"""


def wrap(
    file: Annotated[Path, typer.Argument(help="The client's configuration file: JSON, TOML or YAML.")],
    undo: Annotated[bool, typer.Option("--undo", help="Restore the original configuration.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without making them.")] = False,  # noqa: FBT002
    sandbox: Annotated[
        str | None,
        typer.Option(
            metavar="[PROFILE]",
            help="Run each server in a sandbox: by presets, `require`, or a profile, as in `interlock run`.",
        ),
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Change an MCP client's configuration: run its servers behind the proxy.

    Each stdio server's command becomes `interlock run -- COMMAND`. Servers reached by URL, odd ones
    and everything else in the file stay as they are. The original is saved as FILE.interlock-backup.
    With --sandbox it is `interlock run --sandbox=auto -- COMMAND`. Running it again changes nothing.
    `interlock setup` does this for every client of this machine.
    """
    # Resolved, since dotfile managers link these files: a rename onto the link would replace it by a plain file.
    path = file.expanduser().resolve()
    rewriter = ServerRewriter(syntax_of(path.suffix))
    words = [*interlock_words(), *([f"{SANDBOX}{sandbox}"] if sandbox else [])]
    try:
        change = plan_undo(path, rewriter) if undo else plan(path, rewriter, words)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if not dry_run:
        change.apply()
    if as_json:
        shown = {"file": str(path), "changed": change.changed, "unchanged": dict(change.unchanged)}
        print_json_lines([shown | {"applied": not dry_run and change.after != change.before}])
        return
    if dry_run:
        print_diff(change.difference())
    for line in _told(change, dry_run=dry_run):
        print_note(line)


def _told(change: Change, *, dry_run: bool) -> list[str]:
    verb = ("would be " if dry_run else "") + ("unwrapped" if change.restores else "wrapped")
    told = [f"{name}: {verb}" for name in change.changed]
    told += [f"{name}: not changed, {why}" for name, why in change.unchanged]
    if change.restores and not change.changed:
        told.append("No server in this file is wrapped.")
    if dry_run:
        told.append("Dry run: nothing was changed.")
    elif change.changed and not change.restores:
        told.append("Restart the client to apply it; `interlock wrap --undo` restores the file.")
    return told
