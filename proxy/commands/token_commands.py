"""What `interlock agents` and `interlock operators` share."""

from __future__ import annotations

import datetime as dt
import json

import typer
from rich.console import Console
from rich.table import Table

from proxy.identity.token_file import Tokens


def list_names(tokens: Tokens, *, as_json: bool) -> None:
    """Print who has a token, and since when; never the token."""
    names = tokens.names()
    if as_json:
        for name, added in names.items():
            typer.echo(json.dumps({tokens.role: name, "added": added}))
        return
    table = Table(tokens.role, "added", box=None, header_style="bold", pad_edge=False)
    for name, added in names.items():
        table.add_row(name, f"{dt.datetime.fromtimestamp(added, dt.UTC):%Y-%m-%d %H:%M}")
    Console().print(table if names else f"No {tokens.role}s yet: interlock {tokens.role}s add NAME")


def add_name(tokens: Tokens, name: str, use: str) -> None:
    """Add a name and print its token, this once; `use` says what it is for."""
    token = tokens.add(name)
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"{tokens.role.capitalize()} {name} added. Its token is shown only now; {use}"
    )
    typer.echo(token)


def revoke_name(tokens: Tokens, name: str) -> None:
    """Take a name's token back."""
    tokens.revoke(name)
    Console(stderr=True).print(f"{tokens.role.capitalize()} {name} revoked.")
