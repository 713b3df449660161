"""The audit trail: what waits, what was set aside, where checkpoints go, and stores of each kind and state."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from proxy.audit.local_log import LOG_FILE
from proxy.config import Settings
from proxy.doctor import audit
from proxy.doctor.findings import CheckResult
from proxy.store.sqlite import STORE_FILE
from tests.support.postgres import Postgres
from tests.support.rekor_server import start_rekor
from tests.support.trail_fixture import write


def states(found: Iterable[CheckResult]) -> dict[str, str]:
    return {one.check: one.state for one in found}


def test_what_waits_and_what_keeps_it_is_told(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    assert states(audit.backlog(settings)) == {"audit log": "ok"}
    write(tmp_path, [1, 2])
    (late,) = audit.backlog(settings)
    assert (late.state, "2 events wait" in late.said) == ("warn", True)
    connection = apsw.Connection(str(tmp_path / LOG_FILE))
    connection.execute("UPDATE log SET problem = 'it is down'; INSERT INTO rejected VALUES (9, 'x', 'y', 'z', 1)")
    connection.close()
    assert [one.state for one in audit.backlog(settings)] == ["fail", "warn", "warn"]
    (tmp_path / LOG_FILE).write_bytes(b"garbage " * 600)
    assert [one.state for one in audit.backlog(settings)] == ["fail"]


def test_where_checkpoints_go_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(audit.checkpoints(Settings(state_dir=tmp_path))) == {"checkpoints": "warn"}
    sent = Settings(state_dir=tmp_path, checkpoint_command=f"{sys.executable} -c pass")
    assert states(audit.checkpoints(sent)) == {"checkpoints": "ok"}
    nobody = Settings(state_dir=tmp_path, checkpoint_command="/no/such/program")
    assert states(audit.checkpoints(nobody)) == {"checkpoints": "fail"}
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert states(audit.checkpoints(sent)) == {"checkpoints": "fail"}


def test_an_embedded_store_is_new_or_known_or_spoilt(tmp_path: Path) -> None:
    settings, path = Settings(state_dir=tmp_path), tmp_path / STORE_FILE
    assert states(audit.database(settings)) == {"database": "ok"}
    assert not path.parent.exists()
    path.parent.mkdir()
    for sql, state in (("PRAGMA user_version=1", "ok"), ("PRAGMA user_version=99", "fail")):
        connection = apsw.Connection(str(path))
        connection.execute(sql)
        connection.close()
        assert states(audit.database(settings)) == {"database": state}
    path.write_bytes(b"garbage " * 600)
    assert states(audit.database(settings)) == {"database": "fail"}


def at(url: str) -> dict[str, str]:
    return states(audit.database(Settings(state_dir=Path("/nowhere"), database_url=url)))  # type: ignore[arg-type]


def test_a_database_is_looked_at_as_the_login_that_uses_it(
    postgres: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = urlsplit(database_url).path.strip("/")
    well = {"database": "ok", "schema": "ok", "database clock": "ok"}
    assert at(database_url) == well | {"role": "warn"}
    for role, rights in (("doctor_proxy", "IN ROLE interlock_writer"), ("doctor_guest", "")):
        postgres.psql(f"CREATE ROLE {role} LOGIN {rights}")
    assert at(postgres.url(name, "doctor_proxy")) == well | {"role": "ok"}
    postgres.psql("GRANT SELECT ON interlock_migrations TO doctor_guest", database_url)
    assert at(postgres.url(name, "doctor_guest")) == well | {"role": "fail"}
    assert at(postgres.new_database(migrated=False)) == {"database": "ok", "schema": "fail"}
    monkeypatch.setattr(audit, "OLDEST_POSTGRES", 99)
    monkeypatch.setattr("proxy.doctor.postgres.time.time", lambda: 1_000_000_000.0)
    assert at(database_url) == well | {"database": "fail", "database clock": "warn", "role": "warn"}
    postgres.psql("REVOKE ALL ON interlock_migrations FROM doctor_guest", database_url)
    postgres.psql("DROP ROLE doctor_proxy; DROP ROLE doctor_guest")


def test_a_database_that_does_not_answer_is_told_without_its_password() -> None:
    (found,) = audit.database(
        Settings(state_dir=Path("/nowhere"), database_url="postgresql://u:hunter2@127.0.0.1:1/d")  # type: ignore[arg-type]
    )
    assert (found.state, "hunter2" in found.said) == ("fail", False)


def test_a_connection_that_may_be_in_plain_text_is_told(database_url: str) -> None:
    """The first of two hosts answers; the second is remote, and nothing in the URL asks for TLS."""
    found = audit.database(Settings(state_dir=Path("/nowhere"), database_url=f"{database_url},db.invalid"))  # type: ignore[arg-type]
    (told,) = [one for one in found if one.check == "database TLS"]
    assert (told.state, "db.invalid may be in plain text" in told.said) == ("warn", True)
    assert "sslmode=verify-full" in (told.mend or "")
    assert "database TLS" not in at(database_url)


def test_the_transparency_log_is_asked_for_its_key(tmp_path: Path) -> None:
    def tried(**said: object) -> tuple[str, str]:
        settings = Settings.model_validate({"state_dir": tmp_path, "transparency_key": tmp_path / "key.pem"} | said)
        (found,) = audit.transparency(settings)
        return found.state, found.said

    assert not list(audit.transparency(Settings(state_dir=tmp_path)))
    with start_rekor() as server, start_rekor() as other:
        (tmp_path / "key.pem").write_bytes(server.pem)
        settings = Settings.model_validate({"state_dir": tmp_path, "transparency_log": server.url})
        assert states(audit.checkpoints(settings)) == {"checkpoints": "ok"}
        assert tried(transparency_log=server.url)[0] == "ok"
        assert "signs with key" in tried(transparency_log=other.url)[1]
        server.status = 502
        assert tried(transparency_log=server.url)[0] == "fail"
        (tmp_path / "key.pem").unlink()
        assert "cannot be read" in tried(transparency_log=other.url)[1]
