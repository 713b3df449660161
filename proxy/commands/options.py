"""Options that several commands share, and the settings they lead to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.audit.local_log_files import log_files
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.store.open_store import store_exists

StateDir = Annotated[Path | None, typer.Option("--state-dir", help=Settings.model_fields["state_dir"].description)]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", help=Settings.model_fields["database_url"].description, show_default=False),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; default ./interlock.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
OneLine = Annotated[bool, typer.Option("--json", help="Print it as one line.")]
type Command = Callable[..., None]


def takes(*makes: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command the options that each of `makes` takes. What these return are the command's first arguments."""
    shared = [inspect.signature(make, eval_str=True).parameters for make in makes]

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[len(makes) :]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            pairs = zip(makes, shared, strict=True)
            made = [make(**{name: values.pop(name) for name in names}) for make, names in pairs]
            command(*made, **values)

        options = (*own, *(option for names in shared for option in names.values()))
        every = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
        # typer reads the signature; --json is the last option of every command.
        vars(run)["__signature__"] = inspect.Signature(sorted(every, key=lambda each: each.name == "as_json"))
        return run

    return decorate


def state_folder(state_dir: StateDir = None, config: ConfigFile = None) -> Path:
    return load_settings({"state_dir": state_dir}, config_file=config).settings.state_dir


def store_settings(database_url: DatabaseUrl = None, state_dir: StateDir = None, config: ConfigFile = None) -> Settings:
    return load_settings({"database_url": database_url, "state_dir": state_dir}, config_file=config).settings


def trail_settings(database_url: DatabaseUrl = None, state_dir: StateDir = None, config: ConfigFile = None) -> Settings:
    """Return the settings of a store. Raises ConfigError if there is neither a store nor a local log."""
    settings = store_settings(database_url, state_dir, config)
    folder = settings.state_dir
    if not log_files(folder) and not store_exists(settings.postgres, folder):
        raise ConfigError(
            f"there is no audit log in {folder / 'log'}; `interlock up` and `interlock run` create one, "
            "or give --state-dir"
        )
    return settings
