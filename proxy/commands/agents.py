"""`interlock agents`: who may call, and by which token."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.token_commands import add_name, list_names, revoke_name
from proxy.identity.token_file import AgentTokens

app = typer.Typer(help="Agents and their tokens.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The agent's name.")]


@app.command(epilog="Example:  interlock agents add build-bot")
def add(name: Name, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Add an agent and print its token, this once."""
    use = f"use it as http://{name}:TOKEN@HOST:PORT in HTTPS_PROXY."
    add_name(AgentTokens(state_folder(state_dir, config)), name, use)


@app.command("list", epilog="Example:  interlock agents list --json")
def list_agents(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the agents that have a token."""
    list_names(AgentTokens(state_folder(state_dir, config)), as_json=as_json)


@app.command(epilog="Example:  interlock agents revoke build-bot")
def revoke(name: Name, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Take an agent's token back; a running proxy refuses it at once."""
    revoke_name(AgentTokens(state_folder(state_dir, config)), name)
