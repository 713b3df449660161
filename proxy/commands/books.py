"""What `interlock agents` and `interlock operators` share."""

from __future__ import annotations

import datetime as dt
import json

import typer
from rich.console import Console
from rich.table import Table

from proxy.identity.token_file import TokenBook


def list_names(book: TokenBook, *, as_json: bool) -> None:
    """Print who has a token, and since when; never the token."""
    names = book.names()
    if as_json:
        for name, added in names.items():
            typer.echo(json.dumps({book.role: name, "added": added}))
        return
    table = Table(book.role, "added", box=None, header_style="bold", pad_edge=False)
    for name, added in names.items():
        table.add_row(name, f"{dt.datetime.fromtimestamp(added, dt.UTC):%Y-%m-%d %H:%M}")
    Console().print(table if names else f"No {book.role}s yet: interlock {book.role}s add NAME")


def add_name(book: TokenBook, name: str, use: str) -> None:
    """Add a name and print its token, this once; `use` says what it is for."""
    token = book.add(name)
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"{book.role.capitalize()} {name} added. Its token is shown only now; {use}"
    )
    typer.echo(token)


def revoke_name(book: TokenBook, name: str) -> None:
    """Take a name's token back."""
    book.revoke(name)
    Console(stderr=True).print(f"{book.role.capitalize()} {name} revoked.")
