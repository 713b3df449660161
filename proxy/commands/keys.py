"""`interlock keys`: the keys that sign commit tokens."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from proxy.commands.options import AsJson, ConfigFile, StateDir
from proxy.config import load_settings
from proxy.twophase.keys import KEEP_SECONDS, CommitKeys, Entry, open_keys

app = typer.Typer(help="Keys that sign commit tokens.", no_args_is_help=True)
KeyPath = Annotated[Path | None, typer.Option("--commit-keys", help="File of the keys that sign commit tokens.")]


@app.command("list", epilog="Example:  interlock keys list --json")
def list_keys(
    state_dir: StateDir = None,
    commit_keys: KeyPath = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List the keys by id, with their dates; never the keys themselves."""
    entries = _keys(state_dir, commit_keys, config).entries(time.time())
    rows = [_row(entry, "verifies" if place else "signs") for place, entry in enumerate(entries)]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    table = Table("key", "use", "made", "until", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(str(row["key"]), str(row["use"]), _date(row["created_at"]), _date(row["not_after"]))
    Console().print(table if rows else "No keys yet: one is made at the first start, or by interlock keys rotate")


@app.command(epilog="Example:  interlock keys rotate")
def rotate(
    keep_seconds: Annotated[
        float,
        typer.Option(
            "--keep-seconds", min=0, help="How long the old key verifies tokens it signed; 0 where it may be known."
        ),
    ] = KEEP_SECONDS,
    state_dir: StateDir = None,
    commit_keys: KeyPath = None,
    config: ConfigFile = None,
) -> None:
    """Let a new key sign commit tokens; running proxies follow at once."""
    made = _keys(state_dir, commit_keys, config).rotate(time.time(), keep_seconds)
    Console(stderr=True, soft_wrap=True).print(f"Key {made.key.key_id} signs from now on.")


def _keys(state_dir: Path | None, commit_keys: Path | None, config: Path | None) -> CommitKeys:
    flags = {"state_dir": state_dir, "commit_keys": commit_keys}
    return open_keys(load_settings(flags, config_file=config).settings, os.environ)


def _row(entry: Entry, use: str) -> dict[str, str | float | None]:
    return {
        "key": entry.key.key_id,
        "use": use,
        "created_at": entry.created_at,
        "not_after": entry.key.not_after,
    }


def _date(seconds: str | float | None) -> str:
    return f"{dt.datetime.fromtimestamp(float(seconds), dt.UTC):%Y-%m-%d %H:%M}" if seconds is not None else ""
