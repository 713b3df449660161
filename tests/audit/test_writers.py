"""The registry of writers: registered before the first event, found missing, and whose keys count."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.audit.chain_reader import AllChains, LogChains, StoreChains
from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE, by_writer
from proxy.audit.encoder import encode
from proxy.audit.event_store import Events
from proxy.audit.open_events import open_events
from proxy.audit.retention import prune
from proxy.audit.signed_checkpoints import Found, read_evidence
from proxy.audit.verify import verify
from proxy.audit.writers import KEY, WriterRegistry, contradiction, key_row, registered_keys
from proxy.config import Settings
from proxy.core.event import Head, LogEntry, link, start
from proxy.errors import AuditUnavailableError
from proxy.store import migrate as migrate_module
from proxy.store.migrate import migrations
from proxy.store.postgres import migrate
from tests.support.postgres import Postgres
from tests.support.trail_fixture import START, event, execute, move, sign, signer, write


async def evidence(state_dir: Path, store: Events) -> Found:
    """What a verification on this machine has: its own file, and the store."""
    return await read_evidence(Settings.model_validate({"state_dir": state_dir}), store)


async def problems(state_dir: Path, store: Events) -> tuple[list[str], list[str]]:
    """Return what is found wrong, and which writers nobody vouches for."""
    found = await evidence(state_dir, store)
    report = await verify(AllChains(LogChains(state_dir), StoreChains(store)), found.evidence)
    return [f"{one.what} {one.writer}" for one in report.problems] + found.broken, report.unsigned


@pytest.fixture
async def machines(tmp_path: Path, events: Events) -> tuple[Path, Path, str, str]:
    """Two machines with a writer each in one store; both have seen both."""
    folders = tmp_path / "a", tmp_path / "b"
    heads = [write(folder, range(10 * at + 1, 10 * at + 6)) for at, folder in enumerate(folders)]
    for folder in (*folders, folders[0]):
        sign(folder)
        await move(folder, events)
    write(folders[0], [99])
    await move(folders[0], events)  # the first looks again, and signs that the second is there
    return *folders, heads[0].writer, heads[1].writer


async def test_one_machine_verifies_the_writers_of_all(machines: tuple[Path, Path, str, str], events: Events) -> None:
    assert await problems(machines[0], events) == ([], [])


GONE = "DELETE FROM {} WHERE writer = '{{b}}'"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (["DELETE FROM events WHERE writer = '{b}'"], "missing {b}"),
        (["DELETE FROM events WHERE writer = '{b}' AND seq > 3"], "missing {b}"),
        (
            [
                f"DELETE FROM {table} WHERE writer = '{{b}}'"
                for table in ("events", "audit_checkpoints", "audit_writers")
            ],
            "missing registry",
        ),
        (
            ["DELETE FROM events WHERE writer = '{b}'", "DELETE FROM audit_checkpoints WHERE writer = '{b}'"],
            "missing {b}",
        ),
        (["DELETE FROM audit_writers"], "missing registry"),
        (["UPDATE audit_writers SET body = replace(body, 'host', 'ghost') WHERE writer = '{b}'"], "altered registry"),
        (["UPDATE audit_checkpoints SET line = replace(line, 'head', 'hEad') WHERE writer = '{b}'"], "no checkpoint"),
    ],
)
async def test_what_vanished_of_another_machine_is_found(
    changes: list[str], found: str, machines: tuple[Path, Path, str, str], events: Events
) -> None:
    for change in changes:
        await execute(events, change.format(b=machines[3]))
    wrong, _ = await problems(machines[0], events)
    assert any(found.format(b=machines[3]) in one for one in wrong), wrong


async def test_a_writer_with_a_key_of_its_own_is_vouched_for_by_nobody(
    machines: tuple[Path, Path, str, str], tmp_path: Path, events: Events
) -> None:
    """Somebody who can write to the store brings a writer and a key, and signs for them."""
    forger = tmp_path / "forger"
    body = '{"event_id": "x", "kind": "decided", "time": 5.0}'
    tip = link(start("forged").hash, 1, body)
    await events.write([LogEntry(body, "forged", 1, tip)])
    made = CheckpointSigner(forger, forger / CHECKPOINT_FILE).make("head", [Head("forged", 1, tip)])
    await WriterRegistry(events.database).add(made)
    wrong, unsigned = await problems(machines[0], events)
    assert (wrong, unsigned) == (["unregistered forged"], ["forged"])
    known = (await evidence(machines[0], events)).evidence.writers
    with pytest.raises(AuditUnavailableError, match=r"covers writer forged.*--checkpoints.*--public-key.*--force"):
        await prune(events, START + 1000, signer(machines[0]), signed=known)


async def test_prune_verifies_the_writers_of_other_machines(
    machines: tuple[Path, Path, str, str], events: Events
) -> None:
    known = (await evidence(machines[0], events)).evidence.writers
    await execute(events, f"UPDATE events SET body = replace(body, 'deny', 'none') WHERE writer = '{machines[3]}'")
    done = await prune(events, START + 1000, signer(machines[0]), signed=known)
    assert ([one.writer for one in done.problems], done.gone) == ([machines[3]], 6)
    assert (await problems(machines[0], events))[0] == [f"altered {machines[3]}"]


async def test_what_one_machine_pruned_another_does_not_miss(
    machines: tuple[Path, Path, str, str], events: Events
) -> None:
    known = (await evidence(machines[0], events)).evidence.writers
    assert (await prune(events, START + 13, signer(machines[0]), signed=known)).gone == 7
    write(machines[1], [200])
    await move(machines[1], events)  # it signs the registry, and with it the other's key
    assert await problems(machines[1], events) == ([], [])


async def test_keys_count_once_the_registry_was_signed_behind_them(tmp_path: Path, events: Events) -> None:
    registry, mine = WriterRegistry(events.database), signer(tmp_path)
    key = mine.key()
    end = await registry.register(f"{KEY}{key.key_id}", {"public": "bm9uZQ=="})
    assert registered_keys(await registry.rows(), by_writer(mine.make("head", [end]))) == [], "no key"
    other = signer(tmp_path / "other").key()
    end = await registry.register(f"{KEY}{other.key_id}", key_row(other))
    rows = await registry.rows()
    assert registered_keys(rows, {}) == []
    assert [one.key_id for one in registered_keys(rows, by_writer(mine.make("head", [end])))] == [other.key_id]
    wrong = by_writer(mine.make("head", [Head(end.writer, end.seq, "0" * 64)]))
    assert registered_keys(rows, wrong) == []


async def test_many_register_at_once_and_each_has_its_number(events: Events, where: tuple[str | None, Path]) -> None:
    stores = [open_events(*where) for _ in range(4)]
    names = [f"w{number}" for number in range(12)]
    await asyncio.gather(
        *(WriterRegistry(stores[at % 4].database).register(name, {"host": "h"}) for at, name in enumerate(names))
    )
    rows = await WriterRegistry(events.database).rows()
    assert ([row.number for row in rows], sorted(row.name for row in rows)) == ([*range(1, 13)], sorted(names))
    tip = start(f"registry-{rows[0].said('registry')}").hash
    for row in rows:
        tip = link(tip, row.number, row.body)
        assert row.chain == tip
    for store in stores:
        await store.close()


async def test_writers_from_before_the_registry_are_taken_over(tmp_path: Path) -> None:
    store = open_events(None, tmp_path)
    body = '{"event_id": "x", "kind": "decided", "time": 5.0}'
    await store.write([LogEntry(body, "old", 1, link(start("old").hash, 1, body))])
    await WriterRegistry(store.database, adopts=True).register("new", {})
    assert [row.name for row in await WriterRegistry(store.database).rows()] == ["old", "new"]
    await store.close()


async def test_the_insert_only_role_can_register_and_sign(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.new_database()
    postgres.psql("DROP ROLE IF EXISTS trail_proxy; CREATE ROLE trail_proxy LOGIN IN ROLE interlock_writer")
    store = open_events(url.replace("postgres@", "trail_proxy@"), tmp_path)
    write(tmp_path, [1, 2])
    assert await move(tmp_path, store) == 2
    await store.close()
    owner = open_events(url, tmp_path)
    assert await problems(tmp_path, owner) == ([], [])
    await owner.close()


def test_a_line_of_another_writer_contradicts_nothing(tmp_path: Path) -> None:
    mine = signer(tmp_path)
    lines = [one.line().encode() for one in mine.make("head", [Head("other", 9, "0" * 64)])]
    assert contradiction(lines, mine.public(), Head("w", 1, "1" * 64), lambda _: None) is None
    lines = [one.line().encode() for one in mine.make("head", [Head("w", 1, "0" * 64)])]
    assert contradiction(lines, mine.public(), Head("w", 2, "1" * 64), lambda _: "2" * 64) is not None
    assert contradiction(lines, [], Head("w", 2, "1" * 64), lambda _: "2" * 64) is None, "nobody vouches for it"


@pytest.mark.parametrize("writers", [0, 1, 3])
async def test_a_migration_registers_the_writers_that_are_there(
    writers: int, tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that ended before there was a registry never ships again, and yet is known."""
    url, known = postgres.new_database(migrated=False), migrations("postgres")
    monkeypatch.setattr(migrate_module, "migrations", lambda _: known[:9])
    await migrate(url)
    store = open_events(url, tmp_path)
    for at in range(writers):
        name, body = f"old-{at}", encode(event(at))
        head = Head(name, 1, link(start(name).hash, 1, body))
        await store.write([LogEntry(body, name, 1, head.hash)])
        assert signer(tmp_path).sign("head", [head])
    monkeypatch.undo()
    assert str((await migrate(url))[0]) == "0010_trail"
    assert await problems(tmp_path, store) == ([], [])
    write(tmp_path, [99])
    await move(tmp_path, store)  # the first proxy that ships signs the registry
    assert await problems(tmp_path, store) == ([], [])
    rows = await WriterRegistry(store.database).rows()
    assert [row.said("found") for row in rows] == ["in the store"] * writers + [None, None]
    if writers:
        await execute(store, "DELETE FROM audit_writers WHERE number = 1")
        assert (await problems(tmp_path, store))[0], "what was found is held by what was signed"
    await store.close()
