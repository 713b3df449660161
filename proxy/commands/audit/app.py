"""`interlock audit`: what happened."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.audit.reader import AuditReader, Follower, open_audit
from proxy.commands.audit import export, query, stats, verify
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import format_json, printable
from proxy.config import Settings
from proxy.errors import StoreUnavailableError

FOLLOW_SECONDS = 0.5

app = typer.Typer(help="Find, summarise, export and verify recorded calls.", no_args_is_help=True)
app.command("query", epilog=query.QUERY_EPILOG)(query.query)
app.command("show", epilog=query.SHOW_EPILOG)(query.show)
app.command("stats", epilog=stats.EPILOG)(stats.stats)
app.command("export", epilog=export.EXPORT_EPILOG)(export.export)
app.command("prune", epilog=export.PRUNE_EPILOG)(export.prune)
app.command("verify", epilog=verify.EPILOG)(verify.verify)
app.command("schema", epilog="Example:  interlock audit schema > event.schema.json")(verify.schema)
app.command("rotate-key", epilog="Example:  interlock audit rotate-key")(verify.rotate_key)


@app.command(epilog="Example:  interlock audit tail -n 50 --follow --json")
@takes(trail_settings)
def tail(
    settings: Settings,
    *,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many events, counted from the last.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue with new events until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the last events, oldest first: those in the store, and those that are still in the local logs."""
    batches = follow_events(settings, number) if follow else _last_events(settings, number)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_print_all(batches, as_json=as_json))


async def _last_events(settings: Settings, number: int) -> AsyncIterator[list[dict[str, Any]]]:
    async with open_audit(settings.postgres, settings.state_dir) as audit:
        yield await _last(audit, number)


async def follow_events(
    settings: Settings, number: int, pause: float = FOLLOW_SECONDS
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the last events, and then whatever comes, as it comes. Never ends by itself."""
    async with open_audit(settings.postgres, settings.state_dir) as audit:
        follower = Follower(audit)
        await follower.begin()  # before the last events are read: what comes in between is then seen, and once
        batch = await _last(audit, number)
        follower.know(batch)
        while True:
            if batch:
                yield batch
            await asyncio.sleep(pause)
            batch = await follower.look()


async def _last(audit: AuditReader, number: int) -> list[dict[str, Any]]:
    """Return the last events; without those of a store that does not answer, which is reported."""
    try:
        return await audit.last(number)
    except StoreUnavailableError as error:
        message = f"Only what is still in the local logs is shown: {error}"
        Console(stderr=True, soft_wrap=True).print(message, style="yellow", markup=False)
        # While the store is down, the logs hold the newest events, which is what `tail` is for.
        async with open_audit(None, audit.state_dir, local=True) as logs:
            return await logs.last(number)


async def _print_all(batches: AsyncIterator[list[dict[str, Any]]], *, as_json: bool) -> None:
    with_header = True
    async for batch in batches:
        if as_json:
            for event in batch:
                typer.echo(format_json(event))
        else:
            _print(batch, with_header=with_header)
        with_header = False


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
            # Agents and servers choose these texts: `printable` escapes what would act on the terminal.
            printable(event.get("agent")),
            printable(event.get("server")),
            printable(event.get("tool") or event.get("method")),
            Text(decision, "red" if decision == "deny" else ""),
            *(printable(event.get(name)) for name in ("reason", "rule", "outcome")),
        )
    Console(markup=False).print(table)
