"""`interlock keys`: the keys that sign commit tokens."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, takes
from proxy.commands.terminal import print_json_lines, print_note, print_table
from proxy.commands.time_format import format_time
from proxy.config import load_settings
from proxy.fleet.open_state import find_fleet, needed_kek
from proxy.fleet.shared_keys import SharedCommitKeys
from proxy.twophase.keys import KEEP_SECONDS, CommitKeys, KeyFile, open_keys

app = typer.Typer(help="List and rotate the keys that sign commit tokens.", no_args_is_help=True)
KeyPath = Annotated[Path | None, typer.Option("--commit-keys", help="File of the keys that sign commit tokens.")]


def _keys(
    state_dir: StateDir = None,
    commit_keys: KeyPath = None,
    database_url: DatabaseUrl = None,
    config: ConfigFile = None,
) -> CommitKeys:
    flags = {"state_dir": state_dir, "commit_keys": commit_keys, "database_url": database_url}
    settings = load_settings(flags, config_file=config).settings
    keys = open_keys(settings.commit_keys_file, os.environ)
    fleet = find_fleet(settings) if isinstance(keys, KeyFile) else None
    if fleet is None or not isinstance(keys, KeyFile):
        return keys
    return SharedCommitKeys(fleet, keys, lambda: needed_kek(settings, os.environ))


@app.command("list", epilog="Example:  interlock keys list --json")
@takes(_keys)
def list_keys(keys: CommitKeys, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the keys by id with their dates, never the keys themselves."""
    entries = keys.entries(time.time())
    # The first key signs; older ones only verify tokens that are still on their way.
    uses = ["verifies" if older else "signs" for older, _ in enumerate(entries)]
    if as_json:
        print_json_lines(
            {"key": e.key.key_id, "use": use, "created_at": e.created_at, "not_after": e.key.not_after}
            for e, use in zip(entries, uses, strict=True)
        )
        return
    rows = [
        (e.key.key_id, use, format_time(e.created_at), format_time(e.key.not_after))
        for e, use in zip(entries, uses, strict=True)
    ]
    empty = "No keys yet; the first start of the proxy makes one, and so does `interlock keys rotate`."
    print_table(("key", "use", "made (UTC)", "until (UTC)"), rows, empty)


@app.command(epilog="Example:  interlock keys rotate")
@takes(_keys)
def rotate(
    keys: CommitKeys,
    keep_seconds: Annotated[
        float,
        typer.Option(min=0, help="How long the old key still verifies its tokens; 0 if it may have leaked."),
    ] = KEEP_SECONDS,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Create a new key that signs commit tokens; running proxies use it at once."""
    made = keys.rotate(time.time(), keep_seconds)
    if as_json:
        print_json_lines([{"key": made.key.key_id, "use": "signs"}])
    else:
        print_note(f"Key {made.key.key_id} signs from now on.")
