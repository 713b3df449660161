"""A fleet is made once of one machine's state; others join it, or are told why not, and then nothing has changed."""

from __future__ import annotations

import concurrent.futures
import stat
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.fleet.join import change_kek, join_fleet, join_or_found_fleet
from proxy.fleet.key_encryption_key import KeyEncryptionKey
from proxy.fleet.mirror import SECRETS, Mirror
from proxy.fleet.start import start_fleet
from proxy.identity.ca import Authority
from proxy.identity.token_file import AgentTokens, OperatorTokens
from proxy.store.pin_files import PinFiles
from tests.support.fleet_fixture import ENVIRON, KEK, OTHER_KEK, FleetWorld, listed
from tests.support.postgres import Postgres


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_a_new_replica_has_all_that_the_first_machine_had(world: FleetWorld) -> None:
    first = world.settings("a").state_dir
    token = AgentTokens(first).add("build-bot")
    OperatorTokens(first).ensure()
    PinFiles(first).update("files.example", lambda known: listed(known, ("read", "Reads.")))
    made = world.init("a")
    joined = world.join("b")
    second = world.settings("b").state_dir
    assert (joined.fleet_id, joined.servers) == (made.fleet_id, 1)
    assert joined.replica_id != made.replica_id
    assert AgentTokens(second).verify("build-bot", token)
    assert OperatorTokens(second).operators() == OperatorTokens(first).operators()
    assert PinFiles(second).read("files.example") == PinFiles(first).read("files.example")
    mine, theirs = (Mirror(world.settings(name)) for name in "ab")
    assert [mine.secret(name) for name in SECRETS] == [theirs.secret(name) for name in SECRETS]
    assert Authority(second).look() == Authority(first).look()
    assert (second / "ca" / "ca.pem").read_bytes() == (first / "ca" / "ca.pem").read_bytes()
    assert all(stat.S_IMODE(theirs.file(name).stat().st_mode) == 0o600 for name in SECRETS)


def test_no_key_and_no_token_is_in_the_database(world: FleetWorld, postgres: Postgres) -> None:
    token = AgentTokens(world.settings("a").state_dir).add("build-bot")
    world.init("a")
    dumped = postgres.psql("SELECT encode(body, 'hex') || '|' || encode(seal, 'hex') FROM shared_documents", world.url)
    mirror = Mirror(world.settings("a"))
    for name in SECRETS:
        secret = mirror.secret(name) or b""
        # Whole, and the parts that are keys in files that hold more than a key.
        assert not any(part.hex() in dumped for part in (secret, secret[:32], secret[60:124]) if part), name
    assert token.encode().hex() not in dumped
    assert KEK not in dumped


def test_a_join_may_be_repeated_and_stays_the_same_replica(fleet: FleetWorld) -> None:
    before = files(fleet.settings("b").state_dir)
    again = fleet.join("b")
    assert again.again
    assert files(fleet.settings("b").state_dir) == before


def test_a_join_that_was_cut_short_is_finished_by_the_next(world: FleetWorld) -> None:
    AgentTokens(world.settings("a").state_dir).add("bot")
    PinFiles(world.settings("a").state_dir).update("s", lambda known: listed(known, ("t", "T")))
    world.init("a")
    world.join("b")
    (world.settings("b").state_dir / "fleet.json").unlink()
    assert not world.join("b").again


@pytest.mark.parametrize("kek", [OTHER_KEK])
def test_the_wrong_key_encryption_key_is_told_and_nothing_is_written(world: FleetWorld, kek: str) -> None:
    world.init("a")
    with pytest.raises(ConfigError, match="wrong key-encryption key"):
        world.join("b", kek)
    assert set(files(world.settings("b").state_dir)) <= {"lock"}


def test_without_a_key_encryption_key_nothing_is_joined(world: FleetWorld) -> None:
    world.init("a")
    with pytest.raises(ConfigError, match="there is no key in env INTERLOCK_KEK"):
        join_fleet(world.settings("b"), {})
    with pytest.raises(ConfigError, match="needs the setting key_encryption_key"):
        join_fleet(world.settings("b").model_copy(update={"key_encryption_key": None}), ENVIRON)


def test_without_a_fleet_there_is_nothing_to_join(world: FleetWorld) -> None:
    with pytest.raises(ConfigError, match="has no fleet; run `interlock fleet init`"):
        world.join("b")


def test_a_second_fleet_in_one_database_is_refused(fleet: FleetWorld) -> None:
    with pytest.raises(ConfigError, match=r"has the fleet .* already"):
        fleet.init("c")
    with pytest.raises(ConfigError, match=r"belongs to the fleet .* already"):
        fleet.init("a")


def test_of_two_machines_that_make_a_fleet_at_once_one_does(world: FleetWorld) -> None:
    def attempt(name: str) -> str:
        try:
            return world.init(name).fleet_id
        except ConfigError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(attempt, ["a", "b"]))
    assert sum("already" in one for one in said) == 1


def test_two_joins_at_once_are_two_replicas(world: FleetWorld) -> None:
    world.init("a")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        joined = list(pool.map(world.join, ["b", "c", "d"]))
    assert len({one.replica_id for one in joined}) == 3
    assert len({Mirror(world.settings(name)).secret("mask") for name in "abcd"}) == 1


def test_a_folder_with_keys_of_its_own_is_left_as_it_is(world: FleetWorld) -> None:
    world.init("a")
    other = world.settings("b")
    Mirror(other).make_missing()
    AgentTokens(other.state_dir).add("local")
    before = files(other.state_dir)
    with pytest.raises(ConfigError, match=r"has its own state, mask, .*agents.*which joining would overwrite"):
        world.join("b")
    assert files(other.state_dir) | {"lock": b""} == before | {"lock": b""}


def test_many_start_on_an_empty_database_and_are_one_fleet_with_one_ca(world: FleetWorld) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        started = list(pool.map(lambda name: join_or_found_fleet(world.settings(name), ENVIRON), "abcd"))
    assert len({one.fleet_id for one in started}) == 1
    assert len({one.replica_id for one in started}) == 4
    folders = [world.settings(name).state_dir for name in "abcd"]
    assert len({(folder / "ca" / "ca.pem").read_bytes() for folder in folders}) == 1
    # The first operator's token is with the one that made it, and works at all of them.
    (token,) = [file.read_text().strip() for folder in folders if (file := folder / "keys" / "operator.token").exists()]
    assert all(OperatorTokens(folder).operator(token) for folder in folders)
    assert not [folder for folder in folders if (folder / "founding").exists()]
    again = join_or_found_fleet(world.settings("c"), ENVIRON)
    assert (again.again, again.replica_id) == (True, started[2].replica_id)


def test_a_machine_that_has_run_alone_makes_the_fleet_of_its_own_state(world: FleetWorld) -> None:
    first, second = world.settings("a"), world.settings("b")
    for settings in (first, second):
        Mirror(settings).make_missing()
    certificate = Authority(first.state_dir).look()
    join_or_found_fleet(first, ENVIRON)
    assert Authority(first.state_dir).look() == certificate
    # Which of two CAs is meant is not guessed.
    with pytest.raises(ConfigError, match="which joining would overwrite"):
        join_or_found_fleet(second, ENVIRON)


def test_keys_that_a_crash_left_behind_are_not_the_fleets(world: FleetWorld) -> None:
    Mirror(
        world.settings("a").model_copy(update={"state_dir": world.settings("a").state_dir / "founding"})
    ).make_missing()
    made = join_or_found_fleet(world.settings("a"), ENVIRON)
    assert join_or_found_fleet(world.settings("b"), ENVIRON).fleet_id == made.fleet_id


def test_a_folder_of_another_fleet_is_refused(fleet: FleetWorld, postgres: Postgres, tmp_path: Path) -> None:
    other = FleetWorld(tmp_path, postgres.new_database())
    other.init("z")
    with pytest.raises(ConfigError, match="belongs to the fleet"):
        join_fleet(fleet.settings("z"), ENVIRON)
    with pytest.raises(ConfigError, match="does not agree with its fleet: this replica belongs to the fleet"):
        start_fleet(fleet.settings("z"), ENVIRON)


def test_an_older_and_a_newer_schema_are_told(world: FleetWorld, postgres: Postgres) -> None:
    world.init("a")
    postgres.psql("INSERT INTO interlock_migrations VALUES (9999, 'tomorrow', 'x')", world.url)
    with pytest.raises(ConfigError, match="migration 9999_tomorrow, which this interlock does not know"):
        world.join("b")
    postgres.psql("DELETE FROM interlock_migrations WHERE version = 9999", world.url)
    empty = FleetWorld(world.folder, postgres.new_database(migrated=False))
    with pytest.raises(ConfigError, match=r"lacks migration .*run `interlock db migrate`"):
        empty.join("c")


TAMPERING = {
    "a changed secret": """
        UPDATE shared_documents SET body = set_byte(body, 3, get_byte(body, 3) # 1) WHERE name = 'secret:mask'""",
    "secrets that changed places": """
        UPDATE shared_documents d SET body = o.body, seal = o.seal, key_id = o.key_id FROM shared_documents o
        WHERE (d.name, o.name) IN (('secret:mask', 'secret:seal'), ('secret:seal', 'secret:mask'))""",
    "another number": "UPDATE shared_documents SET generation = 7 WHERE name = 'secret:commit'",
    "an operator added": """
        UPDATE shared_documents
        SET body = convert_to(replace(convert_from(body, 'UTF8'), '"operator"', '"mallory"'), 'UTF8')
        WHERE name = 'list:operators'""",
    "agents in place of operators": """
        UPDATE shared_documents d SET body = o.body, seal = o.seal FROM shared_documents o
        WHERE d.name = 'list:operators' AND o.name = 'list:agents'""",
    "a pin approved": """
        UPDATE shared_pins SET generation = generation + 1,
            body = convert_to(replace(convert_from(body, 'UTF8'), 'Reads', 'Sends'), 'UTF8')""",
}


@pytest.mark.parametrize("change", TAMPERING.values(), ids=TAMPERING)
def test_what_somebody_changed_in_the_database_is_not_taken_over(
    world: FleetWorld, postgres: Postgres, change: str
) -> None:
    PinFiles(world.settings("a").state_dir).update("s", lambda known: listed(known, ("read", "Reads.")))
    world.init("a")
    before = files(world.settings("a").state_dir)
    postgres.psql(change, world.url)
    with pytest.raises(ConfigError, match=r"cannot be opened|was changed by somebody"):
        world.join("b")
    assert set(files(world.settings("b").state_dir)) <= {"lock"}
    with pytest.raises(ConfigError, match="does not agree with its fleet"):
        start_fleet(world.settings("a"), ENVIRON)
    assert files(world.settings("a").state_dir) == before | {"fleet.lock": b""}


def test_a_missing_document_is_told(fleet: FleetWorld, postgres: Postgres) -> None:
    postgres.psql("DELETE FROM shared_documents WHERE name = 'list:agents'", fleet.url)
    with pytest.raises(ConfigError, match="lacks agents"):
        fleet.join("c")


def test_another_key_encryption_key_seals_the_same_keys(fleet: FleetWorld) -> None:
    old, new = (KeyEncryptionKey(bytes.fromhex(text)) for text in (KEK, OTHER_KEK))
    assert change_kek(fleet.settings("a"), old, new) == len(SECRETS)
    with pytest.raises(ConfigError, match="wrong key-encryption key"):
        fleet.join("c")
    fleet.join("c", OTHER_KEK)
    assert Mirror(fleet.settings("c")).key_ids() == Mirror(fleet.settings("a")).key_ids()
    with pytest.raises(ConfigError, match="wrong key-encryption key"):
        change_kek(fleet.settings("a"), old, new)
    with pytest.raises(ConfigError, match=r"sealed with the key-encryption key .* give it the right one"):
        start_fleet(fleet.settings("a"), ENVIRON)
