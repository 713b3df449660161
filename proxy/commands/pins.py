"""`interlock pins`: the tools of MCP servers as approved, and as last seen."""

from __future__ import annotations

import difflib
import json
import time
from typing import Annotated

import typer
from rich.text import Text

from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import escaped, print_json_lines, print_note, print_pairs, print_table, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.core.model import JsonObject
from proxy.errors import ConfigError
from proxy.fleet.open_state import open_pins
from proxy.gate.definition_drift import departures
from proxy.gate.tool_pins import INSTRUCTIONS, Pin, ServerPins, ToolPrint, changed_fields
from proxy.store.pin_files import PinFiles, named_pin

app = typer.Typer(help="List and approve the pinned tools of MCP servers.", no_args_is_help=True)
Server = Annotated[str, typer.Argument(help="The server's name, as `interlock pins list` shows it.")]
Card = Annotated[str | None, typer.Option("--card", help="An agent card, by its path, in place of a tool.")]
Instructions = Annotated[bool, typer.Option("--instructions", help="The server's instructions, in place of a tool.")]


@app.command("list", epilog="Example:  interlock pins list --json")
@takes(store_settings)
def list_pins(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List every server's tools and instructions, and mark those that are new or changed."""
    store = open_pins(settings, fresh=True)
    rows = [(server, name, pin) for server in store.servers() for name, pin in _rows(_pins_of(store, server))]
    if as_json:
        print_json_lines({"server": server, "tool": name, **_summary(pin)} for server, name, pin in rows)
        return
    shown = [
        (server, escaped(name), _coloured(pin), format_time(pin.since), pin.seen.digest[:16])
        for server, name, pin in rows
    ]
    empty = "No tools seen yet: they are pinned when an agent first lists a server's tools."
    print_table(("server", "tool", "state", "since (UTC)", "digest"), shown, empty)


def _rows(known: ServerPins) -> list[tuple[str, Pin]]:
    # A server that never gave instructions has none to show.
    said = known.instructions
    told = [(INSTRUCTIONS, said)] if said and (said.seen.fields or not said.stands) else []
    cards = [(f"(card) {path}", pin) for path, pin in sorted(known.cards.items())]
    return [*told, *cards, *sorted(known.tools.items())]


@app.command(epilog="Example:  interlock pins show mcp.example.com read_file")
@takes(store_settings)
def show(
    settings: Settings,
    server: Server,
    tool: Annotated[str | None, typer.Argument(help="The tool's name.")] = None,
    instructions: Instructions = False,  # noqa: FBT002
    card: Card = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show a tool's definition, the server's instructions or a card, and how they differ from what was approved."""
    if (tool is not None) + instructions + (card is not None) != 1:
        raise ConfigError("name a tool, or give --instructions or --card")
    pin = named_pin(_pins_of(open_pins(settings, fresh=True), server), server, tool, card)
    if as_json:
        approved = pin.approved.definition if pin.approved else None
        named = {"server": server, "tool": tool or (f"(card) {card}" if card else INSTRUCTIONS)}
        found = {**named, **_summary(pin), "seen": pin.seen.definition, "approved": approved}
        print_json_lines([found])
        return
    facts = _summary(pin) | {"since": f"{format_time(pin.since)} UTC"}
    said = {
        name.replace("_", " "): ", ".join(value) if isinstance(value, list) else value for name, value in facts.items()
    }
    print_pairs((name, printable(value) or "none") for name, value in said.items())
    typer.echo("")
    for line in _difference(pin):
        typer.echo(line)


@app.command(epilog="Example:  interlock pins approve mcp.example.com read_file")
@takes(store_settings)
def approve(
    settings: Settings,
    server: Server,
    tool: Annotated[
        str | None, typer.Argument(help="The tool's name; default: all tools of the server, and its instructions.")
    ] = None,
    instructions: Instructions = False,  # noqa: FBT002
    card: Card = None,
    digest: Annotated[
        str | None, typer.Option("--digest", help="Approve only if the tool still has this digest (see `pins show`).")
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Approve a server's tools as last seen; a running proxy uses them at once."""
    given = (tool is not None) + instructions + (card is not None)
    if given > 1:
        raise ConfigError("name a tool, or give --instructions or --card, not two of them")
    if digest is not None and not given:
        raise ConfigError("--digest needs the name of one tool, --instructions or --card")
    open_pins(settings, fresh=True).approve(server, tool, digest, time.time(), instructions=instructions, card=card)
    named = tool or (f"(card) {card}" if card else INSTRUCTIONS if instructions else None)
    if as_json:
        print_json_lines([{"server": server, "tool": named, "approved": True}])
        return
    print_note(f"Approved: {server} {escaped(named or '(all tools)')}")


@app.command(epilog="Example:  interlock pins forget mcp.example.com")
@takes(store_settings)
def forget(settings: Settings, server: Server, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Delete a server's pins; its tools are pinned again at the next listing."""
    store = open_pins(settings, fresh=True)
    _pins_of(store, server)
    store.forget(server)
    if as_json:
        print_json_lines([{"server": server, "forgotten": True}])
    else:
        print_note(f"Forgotten: {printable(server)}")


def _summary(pin: Pin) -> JsonObject:
    return {
        "state": pin.state,
        "since": pin.since,
        "digest": pin.seen.digest,
        "changed": list(changed_fields(pin.approved, pin.seen)) if pin.approved else [],
        "departures": _departures(pin),
        "hidden_characters": list(pin.seen.hidden),
    }


def _departures(pin: Pin) -> list[str]:
    """Say what of a definition is more than a harmless edit of the approved one."""
    if pin.approved is None or pin.approved.digest == pin.seen.digest:
        return []
    return list(departures(pin.approved.definition, pin.seen.definition))


def _coloured(pin: Pin) -> Text:
    state = pin.state
    shown = Text(state, "" if state == "pinned" else "yellow" if state == "edited" else "red")
    # Hidden characters in a description can carry instructions that only the model sees.
    return shown.append(" hidden characters", "red") if pin.seen.hidden else shown


def _difference(pin: Pin) -> list[str]:
    seen = _lines(pin.seen)
    if pin.approved is None or pin.approved.digest == pin.seen.digest:
        return seen
    return list(difflib.unified_diff(_lines(pin.approved), seen, "approved", "seen", n=3, lineterm=""))


def _lines(made: ToolPrint) -> list[str]:
    if made.definition is None:
        return [f"(too long to store; digest {made.digest})"]
    return json.dumps(made.definition, indent=1, sort_keys=True).splitlines()


def _pins_of(store: PinFiles, server: str) -> ServerPins:
    known = store.read(server)
    if known is None:
        raise _unknown_server(store, server)
    return known


def _unknown_server(store: PinFiles, server: str) -> ConfigError:
    names = ", ".join(store.servers()) or "none"
    return ConfigError(f"server {server!r} has no pins; servers with pins: {names}")
