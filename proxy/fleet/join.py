"""Makes a fleet of one machine's state, and brings new replicas in."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.core.ids import new_id
from proxy.errors import ConfigError, SchemaError, StoreUnavailableError
from proxy.fleet import sealing
from proxy.fleet.bridge import StoreBridge
from proxy.fleet.membership import Membership, MembershipFile
from proxy.fleet.mirror import LISTS, OPTIONAL_LISTS, SECRETS, STATE, Mirror
from proxy.fleet.open_state import needed_kek
from proxy.fleet.shared_state import LIST, PINS, SECRET, SharedState
from proxy.identity.ca import Authority
from proxy.identity.token_file import OperatorTokens
from proxy.store.fleet_store import DocumentRow, FleetRow, FleetStore, PinsRow
from proxy.store.open_store import newer_schema
from proxy.system.replica_name import replica_name
from proxy.system.secret_files import FolderLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxy.config import Settings
    from proxy.fleet.key_encryption_key import KeyEncryptionKey
    from proxy.gate.tool_pins import ServerPins

PROBE = "probe"
FOUNDING = "founding"
"""The folder in the state folder where a fleet's first keys are made."""


class FleetExistsError(ConfigError):
    """The database has a fleet already."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What a replica has in common with its fleet now."""

    fleet_id: str
    replica_id: str
    documents: int
    servers: int
    again: bool = False  # it had joined before


def init_fleet(settings: Settings, environ: Mapping[str, str]) -> Joined:
    """Put the state of this folder into the store, for all replicas. Raises ConfigError where there is a fleet."""
    url, kek = _needed(settings, environ)
    lock, bridge = FolderLock(settings.state_dir), StoreBridge(url, settings.state_dir, seconds=10.0)
    try:
        file = MembershipFile(settings.state_dir)
        if (known := file.read()) is not None:
            raise ConfigError(f"the state folder belongs to the fleet {known.fleet_id} already")
        bridge.run(lambda _: _check_schema(url))
        state = SharedState(settings, new_id(), kek)
        state.mirror.make_missing()
        state = SharedState(settings, state.fleet_id, kek)
        documents, pins = list(_documents(state)), list(_pins(state))
        fleet = FleetRow(state.fleet_id, kek.key_id, _probe(kek, state.fleet_id))
        made = bridge.run(lambda store: store.found(fleet, documents, pins))
        if made != state.fleet_id:
            raise FleetExistsError(
                f"the database has the fleet {made} already; `interlock join` brings this machine in"
            )
        return _enter(file, state, documents, pins)
    except StoreUnavailableError as error:
        raise ConfigError(f"the fleet cannot be made: {error}") from error
    finally:
        bridge.close()
        lock.release()


def join_or_found_fleet(settings: Settings, environ: Mapping[str, str]) -> Joined:
    """Join the fleet of the database, made first where there is none. Many may do so at once. Raises ConfigError."""
    if MembershipFile(settings.state_dir).read() is None:
        _found_if_missing(settings, environ)
    return join_fleet(settings, environ)


def _found_if_missing(settings: Settings, environ: Mapping[str, str]) -> None:
    """Make the fleet of this folder, or where it is empty in a folder beside: who comes second keeps an empty one."""
    if Mirror(settings).key_ids():
        with contextlib.suppress(FleetExistsError):
            init_fleet(settings, environ)
        return
    beside = settings.state_dir / FOUNDING
    shutil.rmtree(beside, ignore_errors=True)
    try:
        init_fleet(settings.model_copy(update={"state_dir": beside}), environ)
        token, kept = (OperatorTokens(folder).token_file for folder in (beside, settings.state_dir))
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        token.replace(kept)  # the one thing of a fleet's first machine that the store does not have
    except FleetExistsError:
        pass
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def join_fleet(settings: Settings, environ: Mapping[str, str]) -> Joined:
    """Make this folder a replica's. Raises ConfigError where it cannot be, and then changes nothing."""
    url, kek = _needed(settings, environ)
    lock, bridge = FolderLock(settings.state_dir), StoreBridge(url, settings.state_dir, seconds=10.0)
    try:
        bridge.run(lambda _: _check_schema(url))
        fleet, documents, pins = bridge.run(_read_all)
        if fleet is None:
            raise ConfigError(
                "the database has no fleet; run `interlock fleet init` on the machine whose agents, pins and keys all "
                "replicas should have"
            )
        check_probe(kek, fleet)
        file = MembershipFile(settings.state_dir)
        known = file.read()
        if known is not None and known.fleet_id != fleet.fleet_id:
            raise ConfigError(
                f"the state folder belongs to the fleet {known.fleet_id}, and the database has {fleet.fleet_id}; use "
                "another --state-dir"
            )
        return _take_over(settings, kek, fleet, documents, pins, known)
    except StoreUnavailableError as error:
        raise ConfigError(f"the fleet cannot be joined: {error}") from error
    finally:
        bridge.close()
        lock.release()


def _take_over(
    settings: Settings,
    kek: KeyEncryptionKey,
    fleet: FleetRow,
    documents: Sequence[DocumentRow],
    pins: Sequence[PinsRow],
    known: Membership | None,
) -> Joined:
    state = SharedState(settings, fleet.fleet_id, kek)
    # All of it is opened before any of it is written.
    opened = {row.name: state.open_secret(row) for row in documents if row.name.startswith(SECRET)}
    missing = [name for name in SECRETS if SECRET + name not in opened]
    missing += [name for name in LISTS if LIST + name not in {row.name for row in documents}]
    if missing:
        raise ConfigError(f"the database lacks {', '.join(missing)} of the fleet; restore what was lost first")
    # The key that lists and pins are checked with; `take_document` writes it before them.
    state.use_state_key(opened[SECRET + STATE])
    opened |= {
        row.name: row.body for row in documents if row.name.startswith(LIST) and state.open_list(row) is not None
    }
    servers = dict(state.open_pins(row) for row in pins)
    if known is None:
        _check_empty(state, opened, servers)
    for row in sorted(documents, key=lambda row: row.name != SECRET + STATE):
        state.take_document(row)
    for pinned in pins:
        state.take_pins(pinned)
    Authority(settings.state_dir).ensure()
    if known is not None:
        return Joined(fleet.fleet_id, known.replica_id, len(documents), len(pins), again=True)
    return _enter(MembershipFile(settings.state_dir), state, documents, pins)


def change_kek(settings: Settings, old: KeyEncryptionKey, new: KeyEncryptionKey) -> int:
    """Seal every key of the fleet with another key-encryption key; return how many. Raises ConfigError."""
    url = settings.postgres or ""
    bridge = StoreBridge(url, settings.state_dir, seconds=10.0)
    failed: list[ConfigError] = []
    changed: list[DocumentRow] = []

    def change(fleet: FleetRow, documents: Sequence[DocumentRow]) -> tuple[FleetRow, list[DocumentRow]]:
        failed.clear()
        changed.clear()
        try:
            check_probe(old, fleet)
            opening, sealing_anew = (SharedState(settings, fleet.fleet_id, kek) for kek in (old, new))
            for row in documents:
                if row.name.startswith(SECRET):
                    plain = opening.open_secret(row)
                    changed.append(sealing_anew.seal_secret(row.name.removeprefix(SECRET), row.generation + 1, plain))
        except ConfigError as error:
            failed.append(error)
            raise
        return FleetRow(fleet.fleet_id, new.key_id, _probe(new, fleet.fleet_id)), changed

    try:
        bridge.run(lambda store: store.reseal(change))
    except StoreUnavailableError as error:
        raise failed[0] if failed else ConfigError(f"the keys cannot be sealed anew: {error}") from error
    finally:
        bridge.close()
    return len(changed)


def check_probe(kek: KeyEncryptionKey, fleet: FleetRow) -> None:
    """Raise ConfigError unless the fleet's keys are sealed with this key."""
    try:
        nonce, body = fleet.probe[: sealing.NONCE_BYTES], fleet.probe[sealing.NONCE_BYTES :]
        sealing.unseal(kek, fleet.fleet_id, PROBE, 1, body, nonce)
    except sealing.SealError as error:
        raise ConfigError(
            f"wrong key-encryption key: the fleet's keys are sealed with {fleet.kek_id}, and key_encryption_key gives "
            f"{kek.key_id}"
        ) from error


def _needed(settings: Settings, environ: Mapping[str, str]) -> tuple[str, KeyEncryptionKey]:
    if settings.postgres is None:
        raise ConfigError("a fleet shares a Postgres; set database_url, or give --database-url")
    return settings.postgres, needed_kek(settings, environ)


async def _check_schema(url: str) -> None:
    # One that is too old is refused when it is opened. A replica that runs may meet a newer one; a new one may not.
    if newer := await newer_schema(url):
        raise SchemaError(f"the database has migration {newer}, which this interlock does not know; upgrade it first")


async def _read_all(store: FleetStore) -> tuple[FleetRow | None, list[DocumentRow], list[PinsRow]]:
    return await store.fleet(), await store.documents(), await store.pins()


def _documents(state: SharedState) -> Iterator[DocumentRow]:
    for name in SECRETS:
        yield state.seal_secret(name, 1, state.mirror.secret(name) or b"")
    for name in LISTS:
        yield state.seal_list(name, 1, state.mirror.list(name) or b"{}")
    for name in OPTIONAL_LISTS:
        if (data := state.mirror.list(name)) is not None:
            yield state.seal_list(name, 1, data)


def _pins(state: SharedState) -> Iterator[PinsRow]:
    for server in state.pin_files.servers():
        yield state.seal_pins(server, state.pin_files.read(server), 1)


def _probe(kek: KeyEncryptionKey, fleet_id: str) -> bytes:
    body, nonce = sealing.seal(kek, fleet_id, PROBE, 1, sealing.PROBE)
    return nonce + body


def _check_empty(state: SharedState, opened: Mapping[str, bytes], servers: Mapping[str, ServerPins | None]) -> None:
    """Raise ConfigError where the folder has state of its own, which joining would overwrite."""
    # What is the fleet's already was left by a join that did not finish.
    own = [name for name in SECRETS if state.mirror.secret(name) not in (None, opened[SECRET + name])]
    lists = (*LISTS, *OPTIONAL_LISTS)
    own += [name for name in lists if state.mirror.list(name) not in (None, b"{}", opened.get(LIST + name))]
    pinned = state.pin_files.servers()
    own += ["pins"] if any(state.pin_files.read(server) != servers.get(server) for server in pinned) else []
    if own:
        raise ConfigError(
            f"the state folder {str(state.mirror.state_dir)!r} has its own {', '.join(own)}, which joining would "
            "overwrite; use an empty --state-dir, or move these away"
        )


def _enter(
    file: MembershipFile, state: SharedState, documents: Sequence[DocumentRow], pins: Sequence[PinsRow]
) -> Joined:
    generations = {row.name: row.generation for row in documents} | {PINS + row.name: row.generation for row in pins}
    replica_id = replica_name(state.mirror.state_dir)
    file.write(Membership(state.fleet_id, replica_id, generations))
    return Joined(state.fleet_id, replica_id, len(documents), len(pins))
