"""`interlock audit verify`, `schema` and `rotate-key`."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import apsw
import pytest

from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.local_log import LOG_FILE
from proxy.audit.open_events import open_events
from proxy.audit.rekor_client import RekorClient
from proxy.audit.rekor_entry import LogKey
from proxy.audit.signed_checkpoints import Found, read_checkpoints
from proxy.audit.signing_keys import AuditKeys
from proxy.audit.transparency import PROOF_FILE
from proxy.audit.transparency_feed import TransparencyFeed
from proxy.audit.verify import Evidence
from proxy.config import load_settings
from tests.commands.conftest import Done, Run, complaint
from tests.support.rekor_server import start_rekor
from tests.support.trail_fixture import move, sign, write


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Ten events in the log, signed."""
    folder = tmp_path / "state"
    write(folder, range(1, 11))
    sign(folder)
    return folder


def to_store(state: Path, url: str | None = None) -> None:
    async def go() -> None:
        store = open_events(url, state)
        await move(state, store)
        await store.close()

    asyncio.run(go())


def tamper(file: Path, sql: str) -> None:
    connection = apsw.Connection(str(file))
    connection.execute(sql)
    connection.close()


def summary(done: Done) -> dict[str, object]:
    return json.loads(done.stdout.splitlines()[-1])


def test_a_good_trail_is_exit_code_0(run: Run, state: Path) -> None:
    done = run("audit", "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 events of 1 writer in" in done.stdout
    assert "all as they were written" in done.stdout
    to_store(state)
    assert "10 events of 1 writer in" in run("audit", "verify").stdout


def test_the_first_bad_event_is_named(run: Run, state: Path) -> None:
    to_store(state)
    tamper(state / "store" / "interlock.db", "UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 4")
    done = run("audit", "verify")
    assert done.returncode == 1
    assert "BAD: event 4 of writer" in done.stdout
    assert "(e00004): altered" in done.stdout
    as_json = run("audit", "verify", "--json")
    assert as_json.returncode == 1
    (problem,) = summary(as_json)["problems"]  # type: ignore[misc]
    assert (problem["seq"], problem["event_id"], problem["what"]) == (4, "e00004", "altered")


def test_a_store_on_postgres_is_verified_with_the_logs(run: Run, state: Path, database_url: str) -> None:
    to_store(state, database_url)
    write(state, [11])
    done = run("audit", "verify", "--database-url", database_url, "--json")
    assert (done.returncode, summary(done)["checked"]) == (0, 11)


def test_the_logs_alone_can_be_verified(run: Run, state: Path) -> None:
    done = run("audit", "verify", "--local", "--json")
    assert (done.returncode, summary(done)["checked"]) == (0, 10)


def test_writers_that_nobody_vouches_for_are_exit_code_3(run: Run, state: Path) -> None:
    (state / CHECKPOINT_FILE).unlink()
    done = run("audit", "verify")
    assert done.returncode == 3
    assert "No checkpoint covers 1 of 1 writer:" in done.stdout


def test_a_checkpoint_that_was_forged_is_told(run: Run, state: Path) -> None:
    file = state / CHECKPOINT_FILE
    file.write_text(file.read_text().replace('"seq": 10', '"seq": 9'))
    done = run("audit", "verify")
    assert done.returncode == 1
    assert "BAD CHECKPOINT" in done.stdout
    assert "signature is wrong" in done.stdout


def test_proofs_of_a_transparency_log_are_checked_without_it(run: Run, state: Path, tmp_path: Path) -> None:
    key, proofs = tmp_path / "log.pem", state / PROOF_FILE
    with start_rekor() as log:
        key.write_bytes(log.pem)
        client = RekorClient(log.url)
        feed = TransparencyFeed(state, state / CHECKPOINT_FILE, client, LogKey.parse(log.pem), 600.0)
        assert feed.leads()
        feed.round()
        feed.close()
    assert "give the log's key with transparency_key" in complaint(run("audit", "verify"))
    done = run("audit", "verify", INTERLOCK_TRANSPARENCY_KEY=str(key))
    assert done.returncode == 0
    assert "A transparency log has writer" in done.stdout
    assert "up to event 10, since " in done.stdout
    as_json = [json.loads(line) for line in run("audit", "verify", "--log-key", str(key), "--json").stdout.splitlines()]
    assert [(one["seq"], one["time"]) for one in as_json if one["kind"] == "logged"] == [(10, log.times[0])]
    # Elsewhere, and for an export.
    vault = shutil.copy(proofs, tmp_path / "vault.jsonl")
    assert run("audit", "export", "--output", str(tmp_path / "trail.jsonl")).returncode == 0
    named = ("--checkpoints", str(state / CHECKPOINT_FILE), "--transparency", str(vault), "--log-key", str(key))
    done = run("audit", "verify", "--export", str(tmp_path / "trail.jsonl"), *named)
    assert (done.returncode, "A transparency log has writer" in done.stdout) == (0, True)
    proofs.write_text(proofs.read_text().replace('"integratedTime": 1', '"integratedTime": 2'))
    done = run("audit", "verify", INTERLOCK_TRANSPARENCY_KEY=str(key))
    assert done.returncode == 1
    assert "BAD CHECKPOINT" in done.stdout
    assert "line 1: the log's signature over its time is wrong" in done.stdout


def test_checkpoints_and_keys_kept_elsewhere_are_enough(run: Run, state: Path, tmp_path: Path) -> None:
    vault = tmp_path / "vault.jsonl"
    (state / CHECKPOINT_FILE).rename(vault)
    (key,) = (state / "keys" / "audit-public").iterdir()
    elsewhere = key.rename(tmp_path / "vault.pem")
    assert run("audit", "verify").returncode == 3
    done = run("audit", "verify", "--checkpoints", str(vault), "--public-key", str(elsewhere))
    assert done.returncode == 0


def test_an_export_is_verified(run: Run, state: Path, tmp_path: Path) -> None:
    connection = apsw.Connection(str(state / LOG_FILE))
    ((writer,),) = connection.execute("SELECT writer FROM log")
    rows = [
        {"writer": writer, "seq": seq, "chain": chain, "body": body}
        for seq, chain, body in connection.execute("SELECT seq, chain, body FROM events")
    ]
    connection.close()
    file = tmp_path / "export.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert run("audit", "verify", "--export", str(file)).returncode == 0
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:-1]))
    done = run("audit", "verify", "--export", str(file))
    assert done.returncode == 1
    assert "missing" in done.stdout


def test_since_reads_what_came_after_what_was_verified_or_signed(run: Run, state: Path) -> None:
    to_store(state)
    assert run("audit", "verify").returncode == 0
    write(state, [11, 12])
    sign(state)
    to_store(state)
    done = run("audit", "verify", "--since", "last")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 events before --since were not read" in done.stdout
    assert "2 events of 1 writer" in done.stdout
    write(state, [13])
    sign(state)
    to_store(state)
    change = "UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq IN (4, 13)"
    tamper(state / "store" / "interlock.db", change)
    for seq in (13, 4):  # what was verified before is not read; where a problem was found, all is read the next time
        done = run("audit", "verify", "--since", "last", "--json")
        (problem,) = summary(done)["problems"]  # type: ignore[misc]
        assert (done.returncode, problem["seq"]) == (1, seq)


@pytest.mark.parametrize("words", ["yesterday-ish", "-1d", ""])
def test_a_since_that_is_no_time_is_refused(words: str, run: Run, state: Path) -> None:
    to_store(state)
    assert "--since" in complaint(run("audit", "verify", f"--since={words}"))


def test_no_trail_is_told(run: Run) -> None:
    assert "there is no audit trail" in complaint(run("audit", "verify"))


def test_a_key_is_replaced_and_what_the_old_one_signed_still_holds(run: Run, state: Path) -> None:
    old = AuditKeys(state).signer()[0]
    done = run("audit", "rotate-key")
    new = AuditKeys(state).signer()[0]
    assert new in done.stderr
    assert new != old
    write(state, [11])
    sign(state)
    done = run("audit", "verify", "--json")
    assert (done.returncode, summary(done)["checked"]) == (0, 11)


def test_the_schema_is_json(run: Run) -> None:
    done = run("audit", "schema")
    assert done.returncode == 0
    assert "arguments_hash" in json.loads(done.stdout)["properties"]


def test_the_file_and_keys_are_those_of_the_settings_or_those_given(tmp_path: Path) -> None:
    head = write(tmp_path / "state", [1, 2])
    sign(tmp_path / "state")
    settings = load_settings({"state_dir": tmp_path / "state"}).settings
    found = read_checkpoints(settings)
    signed = found.evidence.signed
    assert (list(signed), signed[head.writer].last, found.broken) == ([head.writer], 2, [])
    empty = load_settings({"state_dir": tmp_path / "other"}).settings
    assert read_checkpoints(empty) == Found(Evidence({}), [])
    vault = tmp_path / "vault"
    vault.mkdir()
    kept = Path(shutil.copy(tmp_path / "state" / "checkpoints" / "checkpoints.jsonl", vault))
    (key,) = (tmp_path / "state" / "keys" / "audit-public").glob("*.pem")
    assert read_checkpoints(empty, [kept], [key]) == Found(Evidence(signed), [])
    assert read_checkpoints(empty, [kept], [key], until=1.0) == Found(Evidence({}), [])
    with kept.open("a") as file:
        file.write("{}\n")
    assert len(read_checkpoints(empty, [kept], [key]).broken) == 1
