"""The public keys whose pushed policies count: the fleet's, where there is one, else those of the state folder.

A fleet's are a shared list like its agents: authenticated in the store, mirrored in the folder. So a replica that joins
can verify the policy in force, and a key is taken from all replicas at once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from proxy.errors import ConfigError
from proxy.fleet.membership import MembershipFile
from proxy.fleet.mirror import POLICY_KEYS, Mirror
from proxy.fleet.open_state import find_fleet
from proxy.fleet.shared_lists import SharedLists
from proxy.rollout.keys import default_trusted, key_entry, trust, trusted_keys

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from proxy.audit.signing_keys import PublicKey
    from proxy.config import Settings
    from proxy.identity.token_file import Edit

    type Entries = dict[str, dict[str, Any]]


def trusted_path(settings: Settings) -> Path:
    """Return the file or folder of the keys that count here."""
    if settings.policy_keys is not None:
        return settings.policy_keys
    if MembershipFile(settings.state_dir).path.exists():
        return Mirror(settings).file(POLICY_KEYS)
    return default_trusted(settings.state_dir)


def read_trusted(settings: Settings) -> Mapping[str, PublicKey]:
    """Return the keys that count, as the fleet has them now where it answers. Raises ConfigError."""
    fleet = find_fleet(settings) if settings.policy_keys is None else None
    if fleet is not None:
        fleet.refresh()
        fleet.bridge.close()
    return trusted_keys(trusted_path(settings))


def trust_key(settings: Settings, key: PublicKey) -> Path:
    """Let what a key signs count: at all replicas of a fleet. Return where it is kept. Raises ConfigError."""
    path = trusted_path(settings)

    def add(entries: Entries) -> None:
        entries.setdefault(key.key_id, key_entry(key, time.time()))

    if settings.policy_keys is None and _change(settings, add):
        return path
    # A setting that names one file is somebody's own choice of key.
    return trust(key, path) if path.is_dir() or settings.policy_keys is None else path


def untrust_key(settings: Settings, key_id: str) -> None:
    """Let nothing count any more that a key signs. Raises ConfigError where it is not among the trusted ones."""
    path = trusted_path(settings)

    def remove(entries: Entries) -> None:
        if entries.pop(key_id, None) is None:
            raise ConfigError(f"there is no key {key_id!r} among the trusted ones in {path}")

    if settings.policy_keys is None and _change(settings, remove):
        return
    file = path / f"{key_id}.pem" if path.is_dir() else None
    if file is None or file.parent != path or not file.exists():
        raise ConfigError(f"there is no key {key_id!r} among the trusted ones in {path}")
    file.unlink()


def _change(settings: Settings, edit: Edit) -> bool:
    """Change the fleet's list; return False where there is no fleet."""
    fleet = find_fleet(settings)
    if fleet is None:
        return False
    try:
        SharedLists(fleet.state, fleet.bridge).change(POLICY_KEYS, edit)
    finally:
        fleet.bridge.close()
    return True
