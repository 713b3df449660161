from __future__ import annotations

import time

import pytest

from proxy.errors import ConfigError
from proxy.fleet.key_encryption_key import KeyEncryptionKey
from proxy.fleet.shared_keys import SharedCommitKeys
from proxy.twophase.keys import KeyFile
from tests.support.fleet_fixture import KEK, OTHER_KEK, FleetWorld


def keys(fleet: FleetWorld, name: str, url: str | None = None, kek: str = KEK) -> SharedCommitKeys:
    file = KeyFile(fleet.settings(name).state_dir / "keys" / "commit-keys.json")
    return SharedCommitKeys(fleet.open(name, url), file, lambda: KeyEncryptionKey(bytes.fromhex(kek)))


def test_a_new_key_signs_everywhere_and_the_old_one_verifies(fleet: FleetWorld) -> None:
    now = time.time()
    one, other = keys(fleet, "a"), keys(fleet, "b")
    old = one.ring(now).current.key_id
    new = one.rotate(now).key.key_id
    assert fleet.open("b").refresh() is None
    assert [key.key.key_id for key in other.entries(now)] == [new, old]
    # One that was not told yet rotates what is there, and loses nothing.
    third = keys(fleet, "a").rotate(now).key.key_id
    fourth = other.rotate(now).key.key_id
    assert [key.key.key_id for key in other.entries(now)] == [fourth, third, new, old]


def test_a_rotation_that_cannot_be_shared_is_none(fleet: FleetWorld, writer_url: str) -> None:
    now = time.time()
    before = keys(fleet, "a").entries(now)
    for attempt in (
        keys(fleet, "a", writer_url),
        keys(fleet, "a", "postgresql://127.0.0.1:1/x"),
        keys(fleet, "a", None, OTHER_KEK),
    ):
        with pytest.raises(ConfigError):
            attempt.rotate(now)
    assert keys(fleet, "a").entries(now) == before
