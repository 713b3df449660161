"""`interlock config`: what holds, and where it came from."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table

from proxy.commands.options import AsJson, ConfigFile, StateDir
from proxy.config import Settings, load_settings

app = typer.Typer(help="Settings.", no_args_is_help=True)


@app.command(epilog="Example:  INTERLOCK_LISTEN=127.0.0.1:9000 interlock config show")
def show(config: ConfigFile = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Print every setting, its value, and where that came from: flag, environment, file or default."""
    loaded = load_settings({"state_dir": state_dir}, config_file=config)
    values = loaded.settings.model_dump(mode="json")
    if as_json:
        for name, value in values.items():
            typer.echo(json.dumps({"setting": name, "value": value, "source": loaded.sources[name]}))
        return
    table = Table("setting", "value", "from", "what it is", box=None, header_style="bold", pad_edge=False)
    for name, value in values.items():
        shown = "" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
        table.add_row(name, shown, loaded.sources[name], Settings.model_fields[name].description)
    Console(markup=False).print(table)
