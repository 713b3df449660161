"""`add`, `list` and `revoke`, which `interlock agents` and `interlock operators` share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, store_settings
from proxy.commands.terminal import print_json_lines, print_note, print_table
from proxy.commands.time_format import format_time
from proxy.fleet.open_state import open_tokens
from proxy.identity.token_file import Tokens


def token_app(
    kind: type[Tokens], summary: str, name_help: str, usage: str, revoked: str, *, without: Collection[str] = ()
) -> typer.Typer:
    """Return the commands for one kind of token, but those in `without`, which the caller adds in its own way.

    `usage` says where the token goes; `{name}` in it is replaced.
    """
    role = kind.role
    app = typer.Typer(help=summary, no_args_is_help=True)
    Name = Annotated[str, typer.Argument(help=name_help)]  # noqa: N806  a type

    def add(
        name: Name,
        state_dir: StateDir = None,
        database_url: DatabaseUrl = None,
        config: ConfigFile = None,
        as_json: AsJson = False,  # noqa: FBT002
    ) -> None:
        token = open_tokens(kind, store_settings(database_url, state_dir, config)).add(name)
        if as_json:
            print_json_lines([{role: name, "token": token}])
            return
        print_note(f"{role.capitalize()} {name} added. The token is shown only once:")
        typer.echo(token)
        print_note(usage.format(name=name))

    def list_names(
        state_dir: StateDir = None,
        database_url: DatabaseUrl = None,
        config: ConfigFile = None,
        as_json: AsJson = False,  # noqa: FBT002
    ) -> None:
        names = open_tokens(kind, store_settings(database_url, state_dir, config)).names()
        if as_json:
            print_json_lines({role: name, "added": added} for name, added in names.items())
            return
        rows = [(name, format_time(added)) for name, added in names.items()]
        print_table((role, "added (UTC)"), rows, f"No {role}s yet; `interlock {role}s add NAME` adds one.")

    def revoke(
        name: Name,
        state_dir: StateDir = None,
        database_url: DatabaseUrl = None,
        config: ConfigFile = None,
        as_json: AsJson = False,  # noqa: FBT002
    ) -> None:
        open_tokens(kind, store_settings(database_url, state_dir, config)).revoke(name)
        if as_json:
            print_json_lines([{role: name, "revoked": True}])
        else:
            print_note(f"{role.capitalize()} {name} revoked.")

    # typer reads annotations from the module's names, and `Name` is a local one.
    for function in (add, revoke):
        function.__annotations__["name"] = Name
    example = f"Example:  interlock {role}s"
    if "add" not in without:
        app.command("add", help=f"Add an {role} and print its token once.", epilog=f"{example} add NAME")(add)
    if "list" not in without:
        app.command("list", help=f"List the {role}s that have a token.", epilog=f"{example} list --json")(list_names)
    app.command("revoke", help=revoked, epilog=f"{example} revoke NAME")(revoke)
    return app
