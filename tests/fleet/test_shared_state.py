"""What a replica takes over, and what it leaves: keys and problems. Pins, lists and joins have files of their own."""

from __future__ import annotations

import pytest

from proxy.errors import ConfigError
from proxy.fleet import sealing
from proxy.fleet.join import change_kek
from proxy.fleet.key_encryption_key import KeyEncryptionKey
from proxy.fleet.mirror import STATE
from proxy.fleet.open_state import find_fleet, open_tokens
from proxy.fleet.sealing import SealError
from proxy.fleet.shared_state import FEW
from proxy.identity.token_file import AgentTokens
from proxy.store.fleet_store import DocumentRow
from tests.support.fleet_fixture import KEK, OTHER_KEK, FleetWorld, listed
from tests.support.postgres import Postgres


def test_without_the_key_encryption_key_lists_are_taken_over_and_keys_are_not(fleet: FleetWorld) -> None:
    without = find_fleet(fleet.settings("b"))
    assert without is not None
    open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    assert without.refresh() is None
    assert list(AgentTokens(fleet.settings("b").state_dir).names()) == ["bot"]
    with pytest.raises(ConfigError, match="need the setting key_encryption_key"):
        without.state.seal_secret("mask", 2, b"x" * 32)


def test_one_row_that_cannot_be_opened_does_not_hold_up_the_others(fleet: FleetWorld, postgres: Postgres) -> None:
    open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    postgres.psql("UPDATE shared_documents SET generation = 9, seal = 'x' WHERE name = 'list:operators'", fleet.url)
    problem = fleet.open("b").refresh()
    assert problem is not None
    assert "list:operators was changed by somebody" in problem
    assert list(AgentTokens(fleet.settings("b").state_dir).names()) == ["bot"]


def test_a_folder_without_its_state_key_trusts_nothing(fleet: FleetWorld) -> None:
    state = fleet.open("b").state
    state.mirror.file(STATE).unlink()
    with pytest.raises(SealError, match="is missing"):
        fleet.open("b").state.seal_list("agents", 2, b"{}")


def test_a_fleet_that_is_gone_from_the_database_is_told(fleet: FleetWorld, postgres: Postgres) -> None:
    postgres.psql("DELETE FROM fleet", fleet.url)
    assert "the database has no fleet" in (fleet.open("a").refresh() or "")


def test_keys_that_were_only_sealed_anew_do_not_stop_a_replica_that_runs(fleet: FleetWorld) -> None:
    old, new = (KeyEncryptionKey(bytes.fromhex(text)) for text in (KEK, OTHER_KEK))
    change_kek(fleet.settings("a"), old, new)
    running = fleet.open("b")
    assert running.refresh() is None
    open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    assert running.refresh() is None
    assert list(AgentTokens(fleet.settings("b").state_dir).names()) == ["bot"]
    # A key that it does not have, and cannot open, does.
    owner = fleet.open("a")
    owner.state.kek = new
    made = owner.state.seal_secret("mask", 3, b"n" * 32)
    assert owner.bridge.run(lambda store: store.replace(made))
    assert "give it the right one" in (running.refresh() or "")


def test_what_only_a_newer_version_knows_is_left_alone(fleet: FleetWorld) -> None:
    owner = fleet.open("a")
    body, nonce = sealing.seal(owner.state.kek or KeyEncryptionKey(b""), owner.state.fleet_id, "secret:../x", 1, b"x")
    rows = [DocumentRow("secret:../x", 1, "", body, nonce), DocumentRow("odd", 1, "", b"", b"")]
    for row in rows:
        owner.state.take_document(row)
    assert not list(fleet.settings("a").state_dir.rglob("x*"))


def test_many_rows_are_read_in_two_questions(fleet: FleetWorld) -> None:
    pins = fleet.open("a").pins()
    for number in range(FEW + 2):
        pins.update(f"s{number}", lambda known: listed(known, ("t", "T")))
    assert fleet.open("b").refresh() is None
    assert len(fleet.open("b").pins().servers()) == FEW + 2
