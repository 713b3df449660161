"""`interlock join`: make this machine a replica of a fleet."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from proxy.commands.fleet import fleet_settings
from proxy.commands.options import AsJson, takes
from proxy.commands.terminal import count, print_json_lines, print_note
from proxy.config import Settings
from proxy.fleet.join import join_fleet, join_or_found_fleet

EPILOG = """
Examples:
  interlock join --database-url postgresql://… --key-encryption-key file:/run/secrets/kek
  interlock join --or-init
"""


@takes(fleet_settings)
def join(
    settings: Settings,
    or_init: Annotated[bool, typer.Option("--or-init", help="Make the fleet first, if the database has none.")] = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Make this machine a replica of the fleet in a Postgres.

    The fleet's keys, CA, agents, operators and pins come here.
    The state folder must be empty, or a replica's of the same fleet already. Nothing is written if anything is wrong:
    another key-encryption key, another version's schema, a row that was changed, or a folder with other keys. With
    --or-init many machines may start at once on an empty database: one makes the fleet, and the others join it.
    """
    joined = (join_or_found_fleet if or_init else join_fleet)(settings, os.environ)
    if as_json:
        print_json_lines([asdict(joined)])
        return
    shared = f"{count(joined.documents, 'document')} and the pins of {count(joined.servers, 'server')}"
    how = "had joined" if joined.again else "joined"
    print_note(
        f"Replica {joined.replica_id} {how} the fleet {joined.fleet_id}: {shared}. Start it with `interlock up`."
    )
