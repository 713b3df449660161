"""`interlock config`: the settings and their sources."""

from __future__ import annotations

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir
from proxy.commands.terminal import print_json_lines, print_note, print_table, stdout_console
from proxy.config import Settings, load_settings

WIDE = 120
app = typer.Typer(help="Show the settings and their sources.", no_args_is_help=True)


@app.command(epilog="Example:  INTERLOCK_LISTEN=127.0.0.1:9000 interlock config show")
def show(config: ConfigFile = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Print every setting with its value and source: flag, environment, file or default."""
    loaded = load_settings({"state_dir": state_dir}, config_file=config)
    values = loaded.settings.model_dump(mode="json")
    if as_json:
        print_json_lines({"setting": n, "value": v, "source": loaded.sources[n]} for n, v in values.items())
        return
    rows = []
    for name, value in values.items():
        shown = "" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
        rows.append((name, shown, loaded.sources[name], Settings.model_fields[name].description or ""))
    console = stdout_console()
    if console.is_terminal and console.width < WIDE:
        print_table(("setting", "value", "from"), [row[:3] for row in rows])
        print_note("A terminal of 120 columns also shows what each is; so does docs/settings.md.")
    else:
        print_table(("setting", "value", "from", "what it is"), rows)
