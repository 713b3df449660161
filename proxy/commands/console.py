"""`interlock console`: opens the web console in a browser, logged in."""

from __future__ import annotations

import html
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.console_link import make_link
from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.terminal import print_json_lines, print_note
from proxy.errors import ConfigError
from proxy.system import run_file
from proxy.system.secret_files import write_private

EPILOG = """
Examples:
  interlock console
  interlock console --print
"""
PrintOnly = Annotated[bool, typer.Option("--print", help="Print the link, and open nothing.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with the operator's token; default: INTERLOCK_OPERATOR_TOKEN, then the first operator's."),
]


def console(
    print_only: PrintOnly = False,  # noqa: FBT002
    token_file: TokenFile = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Open the web console of the running proxy, logged in by a one-time link.

    The link works once, for ten minutes. --json prints it, and opens nothing.
    """
    folder = state_folder(state_dir, config)
    running = run_file.read(folder)
    if running is None:
        raise ConfigError(f"no proxy runs on {folder}; start it with `interlock up`, or give --state-dir")
    if running.console is None:
        raise ConfigError("the proxy runs without a console; set console_listen, for example 127.0.0.1:8090")
    link = make_link(running, folder, token_file)
    if link is None:
        raise ConfigError(f"no operator's token was found; log in at {running.console} or give --token-file")
    if as_json:
        print_json_lines([{"console": running.console, "link": link}])
    elif print_only or not _open(link, folder):
        typer.echo(link)
    else:
        print_note(f"Opened {running.console} in the browser.")


def _open(link: str, folder: Path) -> bool:
    # By way of a private file: every user of this machine can read the arguments of a browser that is started.
    page = folder / "console_open.html"
    write_private(page, f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(link)}">'.encode())
    return webbrowser.open(page.resolve().as_uri())
