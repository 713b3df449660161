"""What a replica does before it serves: agree with the store, or say why it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from proxy.errors import ConfigError, SchemaError, StoreUnavailableError
from proxy.fleet.bridge import StoreBridge
from proxy.fleet.open_state import Fleet, find_fleet_with_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.config import Settings

log = structlog.get_logger("interlock.fleet")


def start_fleet(settings: Settings, environ: Mapping[str, str], *, whole: bool = True) -> Fleet | None:
    """Return the fleet that this proxy is a replica of, with its newest state in the folder; None where there is none.

    Raises ConfigError where the two cannot agree. A database that is away does not stop a replica that has joined:
    what it knew last is in force. `whole`: also what should be known is read again, so that files that somebody changed
    are mended.
    """
    fleet = find_fleet_with_key(settings, environ)
    if fleet is None:
        _check_alone(settings)
        return None
    try:
        problems = fleet.bridge.run(lambda store: fleet.state.catch_up(store, everything=whole))
    except SchemaError as error:
        raise ConfigError(f"this replica cannot join its fleet: {error}") from error
    except StoreUnavailableError as error:
        log.warning("the fleet's store is away; what this replica knew last is in force", error=str(error))
        problems = []
    finally:
        fleet.bridge.close()
    if problems:
        raise ConfigError("this replica does not agree with its fleet: " + "; ".join(problems))
    return replace(fleet, keys_at_start=fleet.state.mirror.key_ids())


def _check_alone(settings: Settings) -> None:
    """Raise ConfigError where the database is a fleet's: keys of one's own would only show later, as bad signatures."""
    if settings.postgres is None:
        if settings.key_encryption_key is not None:
            raise ConfigError("setting key_encryption_key needs database_url: it is for replicas that share a Postgres")
        return
    bridge = StoreBridge(settings.postgres, settings.state_dir)
    try:
        found = bridge.run(lambda store: store.fleet())
    except StoreUnavailableError as error:
        if settings.key_encryption_key is not None and not isinstance(error, SchemaError):
            raise ConfigError(
                f"this state folder has joined no fleet, and the store cannot be asked for one: {error}"
            ) from error
        return
    finally:
        bridge.close()
    if found is not None:
        raise ConfigError(
            f"the database belongs to the fleet {found.fleet_id}, and the state folder {str(settings.state_dir)!r} has "
            "not joined it; set key_encryption_key and run `interlock join`"
        )
    if settings.key_encryption_key is not None:
        raise ConfigError(
            "key_encryption_key is set, and the database has no fleet; run `interlock fleet init` on the machine whose "
            "agents, pins and keys all replicas should have"
        )
