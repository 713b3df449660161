"""Options that several commands share, and the settings they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.audit.local_log_files import log_files
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.store.open_store import store_exists

StateDir = Annotated[Path | None, typer.Option("--state-dir", help=Settings.model_fields["state_dir"].description)]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        help=Settings.model_fields["database_url"].description,
        show_default=False,
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; default ./interlock.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def state_folder(state_dir: Path | None, config_file: Path | None = None) -> Path:
    return load_settings({"state_dir": state_dir}, config_file=config_file).settings.state_dir


def store_settings(database_url: str | None, state_dir: Path | None, config_file: Path | None = None) -> Settings:
    return load_settings({"database_url": database_url, "state_dir": state_dir}, config_file=config_file).settings


def require_trail(settings: Settings) -> None:
    """Raise ConfigError if there is neither a store nor a local log."""
    folder = settings.state_dir
    if not log_files(folder) and not store_exists(settings.postgres, folder):
        raise ConfigError(
            f"there is no audit log in {folder / 'log'}; `interlock up` and `interlock run` create one, "
            "or give --state-dir"
        )
