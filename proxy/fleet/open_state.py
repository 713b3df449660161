"""Opens the state of a folder: its own files, or, where it belongs to a fleet, what all replicas share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.errors import ConfigError, StoreUnavailableError
from proxy.fleet.bridge import StoreBridge
from proxy.fleet.key_encryption_key import read_kek
from proxy.fleet.membership import MembershipFile
from proxy.fleet.shared_lists import SharedLists
from proxy.fleet.shared_pins import SharedPins
from proxy.fleet.shared_state import SharedState
from proxy.store.pin_files import PinFiles
from proxy.vault.vault_file import VaultFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.config import Settings
    from proxy.fleet.key_encryption_key import KeyEncryptionKey
    from proxy.identity.token_file import Tokens


@dataclass(frozen=True, slots=True)
class Fleet:
    """A replica of a fleet: what it knows, and the way to the store."""

    state: SharedState
    bridge: StoreBridge
    replica_id: str
    keys_at_start: Mapping[str, str] = field(default_factory=dict[str, str])

    def pins(self) -> SharedPins:
        return SharedPins(self.state, self.bridge)

    def refresh(self) -> str | None:
        """Take over what is newer in the store; return why that could not be done: what is known stays in force."""
        try:
            return "; ".join(self.bridge.run(self.state.catch_up)) or None
        except StoreUnavailableError as error:
            return str(error)


def find_fleet(settings: Settings, kek: KeyEncryptionKey | None = None) -> Fleet | None:
    """Return the fleet that a state folder belongs to; None where it belongs to none. Nothing is asked yet.

    Raises ConfigError where it belongs to one and no database is named.
    """
    membership = MembershipFile(settings.state_dir).read()
    if membership is None:
        return None
    if settings.postgres is None:
        raise ConfigError(
            f"the state folder {str(settings.state_dir)!r} belongs to the fleet {membership.fleet_id}, and no "
            "database_url is set; set the fleet's, or use another --state-dir"
        )
    state = SharedState(settings, membership.fleet_id, kek)
    return Fleet(state, StoreBridge(settings.postgres, settings.state_dir), membership.replica_id)


def find_fleet_with_key(settings: Settings, environ: Mapping[str, str]) -> Fleet | None:
    """Return the fleet, able to open its keys. Raises ConfigError where the key-encryption key cannot be had."""
    fleet = find_fleet(settings)
    if fleet is not None:
        fleet.state.kek = needed_kek(settings, environ)
    return fleet


def needed_kek(settings: Settings, environ: Mapping[str, str]) -> KeyEncryptionKey:
    if settings.key_encryption_key is None:
        raise ConfigError(
            "a fleet needs the setting key_encryption_key: file:PATH, env:NAME or command:PROGRAM, the same key at "
            "every replica"
        )
    return read_kek(settings.key_encryption_key, environ)


def open_pins(settings: Settings, *, fresh: bool = False) -> PinFiles:
    """Return the pins; `fresh`: as the store has them now, where it answers."""
    fleet = find_fleet(settings)
    if fleet is None:
        return PinFiles(settings.state_dir)
    if fresh:
        fleet.refresh()
    return fleet.pins()


def open_tokens[T: Tokens](kind: type[T], settings: Settings) -> T:
    """Return the agents or the operators; a change of them is one for the whole fleet, where there is one."""
    fleet = find_fleet(settings)
    if fleet is None:
        return kind(settings.state_dir)
    fleet.refresh()
    return kind(settings.state_dir, SharedLists(fleet.state, fleet.bridge))


@contextmanager
def using_vault(settings: Settings) -> Iterator[VaultFile]:
    """Yield the file of credentials for one change in a process that goes on."""
    fleet = find_fleet(settings)
    try:
        yield VaultFile(settings.state_dir, SharedLists(fleet.state, fleet.bridge) if fleet is not None else None)
    finally:
        if fleet is not None:
            fleet.bridge.close()


def open_vault(settings: Settings) -> VaultFile:
    """Return the file of credentials; a change of it is one for the whole fleet, where there is one."""
    fleet = find_fleet(settings)
    if fleet is None:
        return VaultFile(settings.state_dir)
    fleet.refresh()
    return VaultFile(settings.state_dir, SharedLists(fleet.state, fleet.bridge))
