"""`interlock fleet`: replicas that share their state in a Postgres."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, takes
from proxy.commands.terminal import count, print_json_lines, print_note, print_table, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.fleet.join import change_kek, init_fleet
from proxy.fleet.key_encryption_key import read_kek
from proxy.fleet.membership import MembershipFile
from proxy.fleet.open_state import needed_kek
from proxy.fleet.watcher import LIVE_SECONDS
from proxy.store.fleet_store import FleetRow, FleetStore, Replica
from proxy.store.open_store import open_database

app = typer.Typer(help="Share state with other replicas, and show which there are.", no_args_is_help=True)
KeySource = Annotated[
    str | None,
    typer.Option("--key-encryption-key", help=Settings.model_fields["key_encryption_key"].description),
]


def fleet_settings(
    database_url: DatabaseUrl = None,
    key_encryption_key: KeySource = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> Settings:
    flags = {"database_url": database_url, "key_encryption_key": key_encryption_key, "state_dir": state_dir}
    return load_settings(flags, config_file=config).settings


@app.command("init", epilog="Example:  interlock fleet init --key-encryption-key file:/run/secrets/kek")
@takes(fleet_settings)
def init(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Make a fleet of this machine: its agents, operators, pins, keys and CA become those of all replicas.

    It is done once for a database, with the login that owns it and with this machine's proxy stopped. The keys are
    sealed with the key-encryption key, which never reaches the database: keep a copy of it in a safe place.
    """
    joined = init_fleet(settings, os.environ)
    if as_json:
        print_json_lines([asdict(joined)])
        return
    shared = f"{count(joined.documents, 'document')} and the pins of {count(joined.servers, 'server')}"
    print_note(f"Fleet {joined.fleet_id} made, with this machine as its replica {joined.replica_id}: {shared}.")
    print_note("`interlock join` brings other machines in.")


@app.command("status", epilog="Example:  interlock fleet status --json")
@takes(fleet_settings)
def status(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the replicas: version, schema, policy, when last seen, how far behind the shipping is, and problems.

    Exit code: 0 if all replicas are there and have no problem, 1 if not.
    """
    fleet, replicas = asyncio.run(_read(settings))
    if fleet is None:
        raise ConfigError("the database has no fleet; `interlock fleet init` makes one")
    if as_json:
        print_json_lines(_data(one) for one in replicas)
    else:
        print_note(f"Fleet {fleet.fleet_id}, its keys sealed with {fleet.kek_id}.")
        _print(replicas, MembershipFile(settings.state_dir))
    raise typer.Exit(0 if all(_state(one) == "serves" for one in replicas) else 1)


@app.command("forget", epilog="Example:  interlock fleet forget web-2-3f1c9a7be2d4")
@takes(fleet_settings)
def forget(
    settings: Settings,
    replica: Annotated[str, typer.Argument(help="The replica's id, as `interlock fleet status` shows it.")],
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Take a replica that is gone for good off the list. What it has on its disk, it keeps."""
    if not asyncio.run(_forget(settings, replica)):
        raise ConfigError(f"the fleet has no replica {replica!r}; `interlock fleet status` lists them")
    if as_json:
        print_json_lines([{"replica_id": replica, "forgotten": True}])
    else:
        print_note(f"Forgotten: {printable(replica)}")


@app.command("rekey", epilog="Example:  interlock fleet rekey --new-key file:/run/secrets/kek-2")
@takes(fleet_settings)
def rekey(
    settings: Settings,
    new_key: Annotated[str, typer.Option("--new-key", help="Where the new key-encryption key is.")],
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Seal the fleet's keys with another key-encryption key. The keys themselves stay.

    Replicas that run go on, and need the new key at their next start.
    """
    if settings.postgres is None:
        raise ConfigError("a fleet shares a Postgres; set database_url, or give --database-url")
    old, new = needed_kek(settings, os.environ), read_kek(new_key, os.environ)
    sealed = change_kek(settings, old, new)
    if as_json:
        print_json_lines([{"key_encryption_key": new.key_id, "before": old.key_id, "sealed": sealed}])
    else:
        print_note(f"{count(sealed, 'key')} sealed with {new.key_id} in place of {old.key_id}.")


async def _read(settings: Settings) -> tuple[FleetRow | None, list[Replica]]:
    database = _open(settings)
    try:
        store = FleetStore(database)
        return await store.fleet(), await store.replicas()
    finally:
        await database.close()


async def _forget(settings: Settings, replica: str) -> bool:
    database = _open(settings)
    try:
        return await FleetStore(database).forget_replica(replica)
    finally:
        await database.close()


def _open(settings: Settings) -> Any:
    if settings.postgres is None:
        raise ConfigError("a fleet shares a Postgres; set database_url, or give --database-url")
    return open_database(settings.postgres, settings.state_dir)


def _shown(policy: str) -> str:
    """Shorten the version of a policy; where a canary is by agent, there are two."""
    return printable(" + ".join(part[:12] for part in policy.split("+")))


def _state(one: Replica) -> str:
    if one.silent >= LIVE_SECONDS:
        return "silent"
    return "not ready" if one.problem else "serves"


def _data(one: Replica) -> dict[str, Any]:
    return {**asdict(one), "state": _state(one)}


def _print(replicas: list[Replica], file: MembershipFile) -> None:
    own = file.read()
    rows = [
        (
            one.replica_id + (" (here)" if own and own.replica_id == one.replica_id else ""),
            printable(one.host),
            one.version,
            str(one.schema_version),
            _shown(one.policy),
            str(one.workers),
            f"{one.lag_seconds:.0f} s",
            format_time(one.last_seen),
            Text(_state(one), "green" if _state(one) == "serves" else "red"),
        )
        for one in replicas
    ]
    heads = ("replica", "host", "version", "schema", "policy", "workers", "lag", "seen (UTC)", "state")
    print_table(heads, rows, "No replica has started yet.")
    for one in replicas:
        if one.problem:
            typer.echo(f"{printable(one.host)} ({one.replica_id}): {printable(one.problem)}")
