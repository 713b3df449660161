"""What one worker gives out, the others know at once."""

from __future__ import annotations

import os

import pytest

from proxy.core.vault import Credential, Secret
from proxy.vault.shared_values import KEPT, PART, SharedValues, SharedVault
from tests.support.vault_fixture import FakeVault

KEY = Credential(name="key", placeholder="ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ", hosts=("a.test",))


def known(vault: SharedVault) -> list[tuple[str, str, bytes]]:
    return [(owner.name, owner.placeholder, secret.reveal()) for owner, secret in vault.known_values()]


@pytest.fixture
def shared() -> SharedValues:
    return SharedValues(2)


async def test_another_worker_knows_a_value_once_it_is_given_out(shared: SharedValues) -> None:
    one = SharedVault(FakeVault((KEY,), frozenset({"x"}), {"key": b"the-value"}), shared, 1)
    other = SharedVault(FakeVault(), shared, 2)
    assert (known(other), one.credentials(), one.revoked_placeholders()) == ([], (KEY,), {"x"})
    assert other.known_values() is other.known_values()
    for _ in range(2):
        assert (await one.value("key")).reveal() == b"the-value"
    assert known(other) == [("key", KEY.placeholder, b"the-value")]
    assert other.known_values() is other.known_values()
    assert shared.count() == 1


async def test_own_values_stand_first_and_once(shared: SharedValues) -> None:
    own = FakeVault((KEY,), values={"key": b"the-value"}, known=((KEY, Secret(b"the-value")),))
    vault = SharedVault(own, shared, 1)
    await vault.value("key")
    assert known(vault) == [("key", KEY.placeholder, b"the-value")]


def test_it_is_the_memory_of_forked_processes(shared: SharedValues) -> None:
    if (child := os.fork()) == 0:
        shared.tell(2, KEY, Secret(b"from-a-child"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [secret.reveal() for _, secret in shared.told()] == [b"from-a-child"]


def test_a_full_part_is_begun_anew_and_what_was_read_stays_known(shared: SharedValues) -> None:
    vault = SharedVault(FakeVault(), shared, 1)
    large = [bytes((i,)) * 65_000 for i in range(PART // 65_000 + 2)]
    for value in large:
        shared.tell(2, KEY, Secret(value))
        vault.known_values()
    assert {secret.reveal() for _, secret in vault.known_values()} == set(large)
    assert 0 < len(shared.told()) < len(large)
    for i in range(KEPT + 5):
        shared.tell(2, KEY, Secret(b"value-%d" % i))
        vault.known_values()
    assert len(vault.known_values()) == KEPT
