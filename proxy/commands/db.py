"""`interlock db`: migrations of the store's schema."""

from __future__ import annotations

import asyncio
from typing import Any

import typer

from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import print_json_lines, print_note, print_table
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.store.migrate import migrations
from proxy.store.sqlite import STORE_FILE, SqliteDatabase, check_version, schema_version
from proxy.system.database_url import shown

app = typer.Typer(help="Migrate the store's schema and show its state.", no_args_is_help=True)


@app.command(epilog="Example:  INTERLOCK_DATABASE_URL=postgresql://… interlock db migrate")
@takes(store_settings)
def migrate(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Migrate the store's schema; safe to run from several machines at once."""
    applied = asyncio.run(_migrate(settings))
    if as_json:
        print_json_lines([{"store": _where(settings), "applied": applied}])
        return
    for name in applied:
        typer.echo(f"applied {name}")
    typer.echo(f"{_where(settings)} is up to date.")


@app.command(epilog="Example:  interlock db status --json")
@takes(store_settings)
def status(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show which migrations the store has. Exit code: 0 if it is up to date, 1 if not."""
    rows, problem = asyncio.run(_status(settings))
    if as_json:
        print_json_lines([{"store": _where(settings), "problem": problem, "migrations": rows}])
    else:
        typer.echo(_where(settings))
        # SQLite does not know when.
        columns = ("migration", "state", "applied (UTC)")[: 3 if settings.postgres else 2]
        print_table(columns, [(row["migration"], row["state"], format_time(row["at"]))[: len(columns)] for row in rows])
        if problem:
            print_note(problem)
    raise typer.Exit(1 if problem else 0)


async def _migrate(settings: Settings) -> list[str]:
    if settings.postgres is not None:
        from proxy.store.postgres import migrate as migrate_postgres  # noqa: PLC0415  only with Postgres

        return [str(migration) for migration in await migrate_postgres(settings.postgres)]
    # The embedded store migrates itself when it is opened.
    path = settings.state_dir / STORE_FILE
    before = schema_version(path)
    database = SqliteDatabase(path)
    try:
        await database.check()
    finally:
        await database.close()
    return [str(migration) for migration in migrations("sqlite")[before:]]


async def _status(settings: Settings) -> tuple[list[dict[str, Any]], str | None]:
    rows: list[dict[str, Any]] = []
    if settings.postgres is None:
        path, known = settings.state_dir / STORE_FILE, migrations("sqlite")
        version = schema_version(path)
        check_version(path, version, len(known))
        states = ["applied" if migration.version <= version else "missing" for migration in known]
        rows = [{"migration": str(m), "state": state, "at": None} for m, state in zip(known, states, strict=True)]
        return rows, None if version == len(known) else "it is migrated at its next use"
    from proxy.store.postgres import schema_of  # noqa: PLC0415  only with Postgres

    schema = await schema_of(settings.postgres)
    for migration in schema.known:
        applied = schema.applied.get(migration.version)
        state = "missing" if applied is None else "changed" if migration in schema.changed else "applied"
        rows.append({"migration": str(migration), "state": state, "at": applied.at if applied else None})
    rows += [{"migration": f"{a.version:04}_{a.name}", "state": "newer", "at": a.at} for a in schema.newer]
    return rows, schema.problem()


def _where(settings: Settings) -> str:
    return shown(settings.postgres) if settings.postgres else str(settings.state_dir / STORE_FILE)
