"""A state folder that was put back from a backup begins a new writer; numbers are not given twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.audit import restored
from proxy.audit.event_store import Events
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import DaemonLog, log_states
from proxy.audit.pipeline import open_signer
from proxy.audit.restored import open_daemon_log, open_run_log, renew_if_restored
from proxy.audit.ship_sources import OwnSource
from proxy.audit.shipper import Route, Shipper
from proxy.audit.writers import RestoredError
from proxy.config import Settings
from proxy.core.event import Filter
from tests.support.trail_fixture import event, verified


def settings(state_dir: Path, url: str | None = None, **more: object) -> Settings:
    return Settings.model_validate({"state_dir": state_dir, "database_url": url, **more})


def write(chosen: Settings, *numbers: int) -> str:
    """Write events as a proxy does, sign where they end, and return the writer."""
    log = open_daemon_log(chosen)
    for number in numbers:
        log.record_later(event(number))
    log.close()
    assert open_signer(chosen).sign("head", [log.head])
    return log.head.writer


async def ship(chosen: Settings, store: Events) -> int:
    return await Shipper(Route(chosen.state_dir, "embedded"), store, open_signer(chosen), None).move_left()


def back_up(state_dir: Path, to: Path) -> None:
    """Copy the logs as a backup does: what was written, without locks; and keep each file's place."""
    shutil.copytree(state_dir / "log", to)


def put_back(backup: Path, state_dir: Path) -> None:
    """Write the old contents into the same files, so that only what was signed tells."""
    for old in backup.iterdir():
        (state_dir / "log" / old.name).write_bytes(old.read_bytes())


async def test_a_log_that_was_put_back_begins_a_new_writer(
    tmp_path: Path, where: tuple[str | None, Path], events: Events
) -> None:
    chosen = settings(tmp_path, where[0])
    first = write(chosen, 1, 2, 3)
    back_up(tmp_path, tmp_path / "backup")
    assert write(chosen, 4, 5) == first
    assert await ship(chosen, events) == 5
    (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()  # only the store knows
    put_back(tmp_path / "backup", tmp_path)
    second = write(chosen, 6, 7)
    assert second != first
    await ship(chosen, events)
    numbers = sorted((entry.writer == second, entry.seq) for _, entry in await events.events(Filter()))
    assert numbers == [*((False, seq) for seq in range(1, 6)), (True, 1), (True, 2)]
    report = await verified(tmp_path, events)
    assert (report.problems, report.checked) == ([], 7)
    assert write(chosen, 8) == second, "it is begun once"


@pytest.mark.parametrize("place", ["checkpoints/checkpoints.jsonl", "vault.jsonl", "vault/"])
def test_the_file_and_second_places_tell_too(place: str, tmp_path: Path) -> None:
    chosen = settings(
        tmp_path,
        checkpoint_copies=[str(tmp_path / place)]
        if "vault" not in place
        else [f"{tmp_path / place.rstrip('/')}{'/' if place.endswith('/') else ''}"],
    )
    first = write(chosen, 1)
    back_up(tmp_path, tmp_path / "backup")
    write(chosen, 2)
    put_back(tmp_path / "backup", tmp_path)
    if "vault" in place:
        (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()
    assert write(chosen, 3) != first
    assert len(log_states(tmp_path)) == 2, "what was put back is kept"


def test_a_copy_of_a_log_is_another_file(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    first = write(chosen, 1)
    path = tmp_path / LOG_FILE
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)
    (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()
    assert write(chosen, 2) != first


def test_a_log_that_nobody_touched_goes_on(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    assert write(chosen, 1) == write(chosen, 2)
    assert renew_if_restored(chosen, tmp_path / LOG_FILE) is None
    assert renew_if_restored(chosen, tmp_path / "none.db") is None
    run = open_run_log(chosen, asks=False)
    run.close()
    assert (run.head.seq, run.path.name) == (0, "run-1.db")


AWAY = "postgresql://nobody@127.0.0.1:1/none"


async def test_while_the_store_cannot_be_asked_a_new_writer_begins(
    tmp_path: Path, where: tuple[str | None, Path], events: Events
) -> None:
    """The folder was overwritten in place, and the store was away at the start: no event stays behind for ever."""
    chosen = settings(tmp_path, where[0])
    first = write(chosen, 1, 2)
    back_up(tmp_path, tmp_path / "backup")
    write(chosen, 3)
    await ship(chosen, events)
    put_back(tmp_path / "backup", tmp_path)
    (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()
    with capture_logs() as told:
        second = write(settings(tmp_path, AWAY), 9)
    (line,) = [one for one in told if one["event"].startswith("a new writer begins")]
    assert line["log_level"] == "warning"
    assert "the store cannot be asked" in line["why"]
    await ship(chosen, events)
    found = sorted((entry.writer == second, entry.seq) for _, entry in await events.events(Filter()))
    assert (second != first, found) == (True, [(False, 1), (False, 2), (False, 3), (True, 1)])
    report = await verified(tmp_path, events)
    assert (report.problems, report.checked) == ([], 4)
    assert write(chosen, 10) == second, "with the store back, it goes on"


def test_events_of_an_outage_are_kept_from_one_start_to_the_next(tmp_path: Path) -> None:
    chosen = settings(tmp_path, AWAY)
    first, *others = [write(chosen, number) for number in range(1, 8)]
    assert first not in others
    assert len(set(others)) == 1, "a crash loop goes on with the log that began while the store was away"
    assert len(log_states(tmp_path)) == 2
    assert sum(state.backlog for state in log_states(tmp_path).values()) == 7


def test_after_a_reboot_or_once_something_was_shipped_it_does_not_go_on_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(tmp_path, AWAY)
    write(chosen, 1)
    second = write(chosen, 2)
    (tmp_path / "boot_id").write_bytes(b"another\n")
    with monkeypatch.context() as patched:
        patched.setattr(restored, "BOOT_ID", tmp_path / "boot_id")
        third = write(chosen, 3)
        assert write(chosen, 4) == third != second
        log = DaemonLog(tmp_path)
        log.discard(1, {})
        log.close()
        assert write(chosen, 5) != third
        patched.setattr(restored, "BOOT_ID", tmp_path / "none")
        assert write(chosen, 6) != write(chosen, 7)


async def test_a_log_that_was_opened_unasked_makes_no_second_history(tmp_path: Path, events: Events) -> None:
    """A hook does not wait for the store: the shipper asks before it ships, and then ships nothing."""
    chosen = settings(tmp_path)
    write(chosen, 1, 2)
    back_up(tmp_path, tmp_path / "backup")
    write(chosen, 3)
    await ship(chosen, events)
    put_back(tmp_path / "backup", tmp_path)
    log = DaemonLog(tmp_path)
    log.record_later(event(9))
    own = OwnSource(log, "embedded")
    shipper = Shipper(Route(tmp_path, "embedded"), events, open_signer(chosen), own)
    log.close()
    with pytest.raises(RestoredError, match="put back from a backup; start the proxy again"):
        await shipper.round()
    own.connection.close()
    assert [entry.seq for _, entry in await events.events(Filter())] == [1, 2, 3]
