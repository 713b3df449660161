"""Whether this machine is at one with its fleet, and whether its replicas are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.doctor.findings import fail, ok, warn
from proxy.errors import StoreUnavailableError
from proxy.fleet.open_state import find_fleet_with_key
from proxy.fleet.watcher import LIVE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.config import Settings
    from proxy.doctor.findings import CheckResult
    from proxy.store.fleet_store import FleetRow, FleetStore, Replica

CHECK = "fleet"


def replicas(settings: Settings, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield what is wrong with the fleet. Raises ConfigError where it cannot be opened; nothing here is changed."""
    fleet = find_fleet_with_key(settings, environ)
    if fleet is None:
        yield ok(CHECK, "this state folder belongs to no fleet")
        return
    try:
        row, found = fleet.bridge.run(_read)
    except StoreUnavailableError as error:
        mend = "what this replica knew last stays in force; see the check of the database"
        yield fail(CHECK, f"the fleet's store cannot be asked: {error}", mend)
        return
    finally:
        fleet.bridge.close()
    there = row.fleet_id if row else "none"
    if row is None or there != fleet.state.fleet_id:
        said = f"this state folder belongs to the fleet {fleet.state.fleet_id}, and the database has {there}"
        yield fail(CHECK, said, "set the fleet's database_url, or `interlock join` with an empty state folder")
        return
    assert fleet.state.kek is not None
    if row.kek_id != fleet.state.kek.key_id:
        said = f"the fleet's keys are sealed with {row.kek_id}, and key_encryption_key gives {fleet.state.kek.key_id}"
        yield fail(CHECK, said, "give this replica the fleet's key-encryption key, and restart it")
        return
    yield from _others(found)


async def _read(store: FleetStore) -> tuple[FleetRow | None, list[Replica]]:
    return await store.fleet(), await store.replicas()


def _others(found: list[Replica]) -> Iterator[CheckResult]:
    silent = [one for one in found if one.silent >= LIVE_SECONDS]
    for one in silent:
        said = f"replica {one.replica_id} on {one.host} has been silent for {one.silent:.0f} s"
        yield warn(CHECK, said, f"start it, or `interlock fleet forget {one.replica_id}` if it is gone for good")
    for one in found:
        if one.problem and one not in silent:
            yield warn(CHECK, f"replica {one.replica_id} on {one.host} is not ready: {one.problem}", "see its /readyz")
    if not silent and not any(one.problem for one in found):
        yield ok(CHECK, f"{len(found)} replicas, all of them ready")
