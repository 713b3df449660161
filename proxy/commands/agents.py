"""`interlock agents`: who may call, and by which token."""

from __future__ import annotations

import datetime as dt
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from proxy.agents import AgentBook
from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder

app = typer.Typer(help="Agents and their tokens.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The agent's name.")]


@app.command(epilog="Example:  interlock agents add build-bot")
def add(name: Name, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Add an agent and print its token, this once."""
    token = AgentBook(state_folder(state_dir, config)).add(name)
    Console(stderr=True, soft_wrap=True).print(
        f"Agent {name} added. Its token is shown only now; use it as http://{name}:TOKEN@HOST:PORT in HTTPS_PROXY."
    )
    typer.echo(token)


@app.command("list", epilog="Example:  interlock agents list --json")
def list_agents(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the agents that have a token."""
    names = AgentBook(state_folder(state_dir, config)).names()
    if as_json:
        for name, added in names.items():
            typer.echo(json.dumps({"agent": name, "added": added}))
        return
    table = Table("agent", "added", box=None, header_style="bold", pad_edge=False)
    for name, added in names.items():
        table.add_row(name, f"{dt.datetime.fromtimestamp(added, dt.UTC):%Y-%m-%d %H:%M}")
    Console().print(table if names else "No agents yet: interlock agents add NAME")


@app.command(epilog="Example:  interlock agents revoke build-bot")
def revoke(name: Name, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Take an agent's token back; a running proxy refuses it at once."""
    AgentBook(state_folder(state_dir, config)).revoke(name)
    Console(stderr=True).print(f"Agent {name} revoked.")
