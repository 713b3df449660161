"""`interlock pins`: the tools that servers offer, as first seen and as they are now."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.core.model import JsonObject
from proxy.errors import ConfigError
from proxy.gate.tool_pins import Pin, ServerPins, ToolPrint, changed_fields
from proxy.gate.tool_pins import approve as approve_pins
from proxy.store.pin_files import PinFiles

app = typer.Typer(help="Tools as pinned, and what became of them.", no_args_is_help=True)
Server = Annotated[str, typer.Argument(help="The server's name, as `interlock pins list` gives it.")]


@app.command("list", epilog="Example:  interlock pins list --json")
def list_pins(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List every server's tools, and which of them are not as approved."""
    store = PinFiles(state_folder(state_dir, config))
    rows = [
        (server, name, pin) for server in store.servers() for name, pin in sorted(_pins_of(store, server).tools.items())
    ]
    if as_json:
        for server, name, pin in rows:
            typer.echo(json.dumps({"server": server, "tool": name, **_summary(pin)}))
        return
    table = Table("server", "tool", "state", "since", "digest", box=None, header_style="bold", pad_edge=False)
    for server, name, pin in rows:
        when = dt.datetime.fromtimestamp(pin.since, dt.UTC)
        table.add_row(escape(server), _plain(name), _coloured(pin), f"{when:%Y-%m-%d %H:%M}", pin.seen.digest[:16])
    Console().print(table if rows else "No tools seen yet: pins are made when an agent lists a server's tools.")


@app.command(epilog="Example:  interlock pins show mcp.example.com read_file")
def show(
    server: Server,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show what a server says of a tool, and how it differs from what was approved."""
    pin = _pin_of(PinFiles(state_folder(state_dir, config)), server, tool)
    if as_json:
        approved = pin.approved.definition if pin.approved else None
        found = {"server": server, "tool": tool, **_summary(pin), "seen": pin.seen.definition, "approved": approved}
        typer.echo(json.dumps(found))
        return
    for name, value in _summary(pin).items():
        typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    typer.echo("")
    for line in _difference(pin):
        typer.echo(line)


@app.command(epilog="Example:  interlock pins approve mcp.example.com read_file")
def approve(
    server: Server,
    tool: Annotated[str | None, typer.Argument(help="The tool's name; all of the server's where not given.")] = None,
    digest: Annotated[
        str | None, typer.Option("--digest", help="Approve only if this is what was seen last, as `show` gives it.")
    ] = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Approve a server's tools as they were last seen; a running proxy follows at once."""
    if digest is not None and tool is None:
        raise ConfigError("--digest speaks of one tool; name it")
    store = PinFiles(state_folder(state_dir, config))

    def change(known: ServerPins | None) -> ServerPins | None:
        if known is None:
            raise _unknown_server(store, server)
        if tool is not None:
            _check_digest(_named(known, server, tool), digest)
        return approve_pins(known, tool, time.time())

    store.update(server, change)
    Console(stderr=True, soft_wrap=True).print(f"Approved: {escape(server)} {_plain(tool) if tool else '(all tools)'}")


@app.command(epilog="Example:  interlock pins forget mcp.example.com")
def forget(server: Server, state_dir: StateDir = None, config: ConfigFile = None) -> None:
    """Forget a server: its tools are pinned anew when they are next listed."""
    store = PinFiles(state_folder(state_dir, config))
    _pins_of(store, server)
    store.update(server, lambda _: None)
    Console(stderr=True, soft_wrap=True).print(f"Forgotten: {escape(server)}")


def state_of(pin: Pin) -> str:
    """Return a pin's state in one word."""
    if pin.stands:
        return "pinned"
    return "new" if pin.approved is None else "changed"


def _summary(pin: Pin) -> JsonObject:
    return {
        "state": state_of(pin),
        "since": pin.since,
        "digest": pin.seen.digest,
        "changed": list(changed_fields(pin.approved, pin.seen)) if pin.approved else [],
        "hidden_characters": list(pin.seen.hidden),
    }


def _coloured(pin: Pin) -> str:
    state = state_of(pin)
    shown = state if state == "pinned" else f"[red]{state}[/]"
    return f"{shown} [red]hidden characters[/]" if pin.seen.hidden else shown


def _difference(pin: Pin) -> list[str]:
    seen = _lines(pin.seen)
    if pin.approved is None or pin.approved.digest == pin.seen.digest:
        return seen
    return list(difflib.unified_diff(_lines(pin.approved), seen, "approved", "seen", n=3, lineterm=""))


def _lines(made: ToolPrint) -> list[str]:
    if made.definition is None:
        return [f"(too long to keep; digest {made.digest})"]
    return json.dumps(made.definition, indent=1, sort_keys=True).splitlines()


def _check_digest(pin: Pin, digest: str | None) -> None:
    if digest is not None and (len(digest) < 8 or not pin.seen.digest.startswith(digest)):
        raise ConfigError(f"the tool's digest is {pin.seen.digest}, not {digest!r}; look at it again")


def _pins_of(store: PinFiles, server: str) -> ServerPins:
    known = store.read(server)
    if known is None:
        raise _unknown_server(store, server)
    return known


def _pin_of(store: PinFiles, server: str, tool: str) -> Pin:
    return _named(_pins_of(store, server), server, tool)


def _named(known: ServerPins, server: str, tool: str) -> Pin:
    if tool not in known.tools:
        names = ", ".join(sorted(map(_plain, known.tools))) or "none"
        raise ConfigError(f"the server {server!r} has no pinned tool {tool!r}; pinned are: {names}")
    return known.tools[tool]


def _unknown_server(store: PinFiles, server: str) -> ConfigError:
    names = ", ".join(store.servers()) or "none"
    return ConfigError(f"no tools of a server {server!r} are pinned; servers with pins: {names}")


def _plain(name: str) -> str:
    """Spell a server's own words so that a terminal shows all of them and obeys none."""
    return escape(json.dumps(name)[1:-1])
