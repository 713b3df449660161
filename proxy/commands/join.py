"""`interlock join`: make this machine a replica of a fleet."""

from __future__ import annotations

import os
from dataclasses import asdict

from proxy.commands.fleet import fleet_settings
from proxy.commands.options import AsJson, takes
from proxy.commands.terminal import count, print_json_lines, print_note
from proxy.config import Settings
from proxy.fleet.join import join_fleet

EPILOG = """
Examples:
  interlock join --database-url postgresql://… --key-encryption-key file:/run/secrets/kek
"""


@takes(fleet_settings)
def join(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Make this machine a replica of the fleet in a Postgres.

    The fleet's keys, CA, agents, operators and pins come here.
    The state folder must be empty, or a replica's of the same fleet already. Nothing is written if anything is wrong:
    another key-encryption key, another version's schema, a row that was changed, or a folder with other keys.
    """
    joined = join_fleet(settings, os.environ)
    if as_json:
        print_json_lines([asdict(joined)])
        return
    shared = f"{count(joined.documents, 'document')} and the pins of {count(joined.servers, 'server')}"
    how = "had joined" if joined.again else "joined"
    print_note(
        f"Replica {joined.replica_id} {how} the fleet {joined.fleet_id}: {shared}. Start it with `interlock up`."
    )
