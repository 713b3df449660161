"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.audit.local_log_files import log_files
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.store.open_store import store_exists

StateDir = Annotated[
    Path | None, typer.Option("--state-dir", help="Where the CA, keys, agents and the audit log are kept.")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        help="Postgres that replicas share; without one, a file in the state folder.",
        show_default=False,
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; default ./interlock.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def state_folder(state_dir: Path | None, config_file: Path | None = None) -> Path:
    """Return the state folder that the flags, environment and file say."""
    return load_settings({"state_dir": state_dir}, config_file=config_file).settings.state_dir


def store_settings(database_url: str | None, state_dir: Path | None, config_file: Path | None = None) -> Settings:
    """Return the settings that say where the store is: `.postgres` (a URL or None) and `.state_dir`."""
    return load_settings({"database_url": database_url, "state_dir": state_dir}, config_file=config_file).settings


def require_trail(settings: Settings) -> None:
    """Raise ConfigError where there is neither a store nor a local log to read events from."""
    folder = settings.state_dir
    if not log_files(folder) and not store_exists(settings.postgres, folder):
        raise ConfigError(
            f"there is no audit log in {folder / 'log'}; `interlock up` and `interlock run` make one, "
            "or give --state-dir"
        )
