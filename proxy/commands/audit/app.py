"""`interlock audit`: what happened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from proxy.audit.reader import AuditReader, Follower, open_audit
from proxy.commands.audit import archive, consume, export, query, receipt, stats, verify
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import COLOURS, LineTable, format_json, print_note, printable, stdout_console
from proxy.commands.time_format import format_exact_time, format_time
from proxy.config import Settings
from proxy.errors import StoreUnavailableError

FOLLOW_SECONDS = 0.5
COLUMNS = ("time (UTC)", "what", "agent", "server", "tool or method", "rule or reason")
MORE = ("kind", "reason", "outcome", "call_id")  # where there is room for them
WIDE = 150

app = typer.Typer(help="Find, summarise, export and verify recorded calls.", no_args_is_help=True)
app.command("query", epilog=query.QUERY_EPILOG)(query.query)
app.command("show", epilog=query.SHOW_EPILOG)(query.show)
app.command("stats", epilog=stats.EPILOG)(stats.stats)
app.command("export", epilog=export.EXPORT_EPILOG)(export.export)
app.command("prune", epilog=export.PRUNE_EPILOG)(export.prune)
app.command("archive", epilog=archive.EPILOG)(archive.archive)
app.command("consume", epilog=consume.EPILOG)(consume.consume)
app.command("verify", epilog=verify.EPILOG)(verify.verify)
app.command("receipt", epilog=receipt.EPILOG)(receipt.receipt)
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
    """Print the last events, oldest first: those in the store, and those that are still in the local logs.

    On a terminal each event is one line, and long values are cut in the middle (…). In a pipe or a file, and
    with --json, every value is whole; --json has every field.
    """
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
        print_note(f"Only what is still in the local logs is shown: {printable(error)}")
        # While the store is down, the logs hold the newest events, which is what `tail` is for.
        async with open_audit(None, audit.state_dir, local=True) as logs:
            return await logs.last(number)


async def _print_all(batches: AsyncIterator[list[dict[str, Any]]], *, as_json: bool) -> None:
    lines = _EventLines()
    async for batch in batches:
        if as_json:
            for event in batch:
                typer.echo(format_json(event))
        elif batch:
            lines.print(batch)
        else:
            print_note("No events yet; they are recorded when agents call through Interlock.")


class _EventLines:
    """Prints events, each on one line: what tells most comes first, and the date once, above the events of a day."""

    def __init__(self) -> None:
        console = stdout_console()
        self._short = console.is_terminal
        self._more = MORE if not console.is_terminal or console.width >= WIDE else ()
        self._table = LineTable((*COLUMNS, *self._more), whole=COLUMNS[:2], console=console)
        self._day = ""

    def print(self, events: Sequence[dict[str, Any]]) -> None:
        rows: list[tuple[str | Text, ...]] = []
        for event in events:
            day, _, time = format_time(event["time"]).partition(" ")
            if self._short and day != self._day:
                self._day = day
                rows.append((day, *[""] * (len(self._table.columns) - 1)))
            more = (printable(event.get(name)) for name in self._more)
            rows.append((time if self._short else format_exact_time(event["time"]), *_told(event), *more))
        self._table.print(rows)


def _told(event: dict[str, Any]) -> tuple[str | Text, ...]:
    # Agents and servers choose these texts: `printable` escapes what would act on the terminal.
    decision = printable(event.get("decision"))
    why = event.get("rule") or event.get("reason") or event.get("outcome")
    return (
        Text(decision or printable(event["kind"]), COLOURS.get(decision, "") if decision else "dim"),
        *(printable(event.get(name)) for name in ("agent", "server")),
        printable(event.get("tool") or event.get("method")),
        printable(why),
    )
