"""`interlock audit`: what happened."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.commands.audit import export, query, stats, trail, verify
from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, require_trail, store_settings
from proxy.commands.terminal import format_json, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(
    help="What happened: find calls, sum up, export, and verify that nothing was changed.", no_args_is_help=True
)
app.command("query", epilog=query.QUERY_EPILOG)(query.query)
app.command("show", epilog=query.SHOW_EPILOG)(query.show)
app.command("stats", epilog=stats.EPILOG)(stats.stats)
app.command("export", epilog=export.EXPORT_EPILOG)(export.export)
app.command("prune", epilog=export.PRUNE_EPILOG)(export.prune)
app.command("verify", epilog=verify.EPILOG)(verify.verify)
app.command("schema", epilog="Example:  interlock audit schema > event.schema.json")(verify.schema)
app.command("rotate-key", epilog="Example:  interlock audit rotate-key")(verify.rotate_key)


@app.command(epilog="Example:  interlock audit tail -n 50 --follow --json")
def tail(
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many events, counted from the last.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes, until Ctrl-C.")] = False,  # noqa: FBT002
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Print the last events, oldest first: of the store, and of the local logs that were not moved there yet."""
    settings = store_settings(database_url, state_dir, config)
    require_trail(settings)
    batches = trail.follow(settings, number) if follow else [trail.last_events(settings, number)]
    with contextlib.suppress(KeyboardInterrupt):
        for place, batch in enumerate(batches):
            if as_json:
                for event in batch:
                    typer.echo(format_json(event))
            else:
                _print(batch, with_header=place == 0)


def _print(events: Iterable[dict[str, Any]], *, with_header: bool) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=with_header)
    for name in ("time", "kind", "agent", "server", "tool or method", "decision", "reason", "rule", "outcome"):
        table.add_column(name, overflow="fold")
    for event in events:
        when = dt.datetime.fromtimestamp(event["time"], dt.UTC)
        decision = event.get("decision", "")
        table.add_row(
            f"{when:%H:%M:%S.%f}"[:-3],
            event["kind"],
            printable(event.get("agent")),
            printable(event.get("server")),
            printable(event.get("tool") or event.get("method")),
            Text(decision, "red" if decision == "deny" else ""),
            *(printable(event.get(name)) for name in ("reason", "rule", "outcome")),
        )
    Console(markup=False).print(table)
