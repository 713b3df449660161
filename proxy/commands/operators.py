"""`interlock operators`: who may approve what agents propose, and by which token."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.token_commands import add_name, list_names, revoke_name
from proxy.identity.token_file import OperatorTokens

app = typer.Typer(help="Operators and their tokens.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The operator's name, as it is recorded with what they decide.")]


@app.command(epilog="Example:  interlock operators add alice > alice.token")
def add(name: Name, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Add an operator and print the token, this once."""
    use = "give it to `interlock proposals` with --token-file or in INTERLOCK_OPERATOR_TOKEN, and to no agent."
    add_name(OperatorTokens(state_folder(state_dir, config)), name, use)


@app.command("list", epilog="Example:  interlock operators list --json")
def list_operators(
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List the operators that have a token."""
    list_names(OperatorTokens(state_folder(state_dir, config)), as_json=as_json)


@app.command(epilog="Example:  interlock operators revoke alice")
def revoke(name: Name, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Take an operator's token back; it is refused at once, and what they decided stands."""
    revoke_name(OperatorTokens(state_folder(state_dir, config)), name)
