"""What keeps the trail of a process, from its first event to its last."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.audit import log_thread
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.local_log_files import DaemonLog, log_states
from proxy.audit.pipeline import AuditPipeline, LenientSink, checkpoint_file, destination, open_signer
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import AuditUnavailableError, ConfigError
from tests.support.rekor_server import start_rekor
from tests.support.timeouts import PATIENCE
from tests.support.trail_fixture import event, verified
from tests.support.trail_reader import read_trail


def settings(tmp_path: Path, **values: Any) -> Settings:
    # The events are old: a shipper that has the time for it would let go of them.
    return Settings(state_dir=tmp_path, retention_days=36_500, **values)


async def test_everything_recorded_is_in_the_store_and_signed_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread, "LAST_SECONDS", PATIENCE)
    log = DaemonLog(tmp_path)
    recording = AuditPipeline(settings(tmp_path), log, adopts_all=True)
    await recording.sink.record(event(1))
    recording.sink.record_later(event(2))
    await asyncio.to_thread(recording.close)
    assert log_states(tmp_path)[log.path].backlog == 0
    assert [stored["event_id"] for stored in read_trail(tmp_path)] == ["e00001", "e00002"]
    from proxy.audit.open_events import open_events

    store = open_events(None, tmp_path)
    report = await verified(tmp_path, store)
    await store.close()
    assert (report.problems, report.checked, report.writers[0].proven) == ([], 2, 2)


async def test_a_postgres_that_is_down_keeps_nobody_and_loses_nothing(tmp_path: Path) -> None:
    log = DaemonLog(tmp_path)
    down = settings(tmp_path, database_url="postgresql://127.0.0.1:1/none")
    recording = AuditPipeline(down, log, adopts_all=True)
    await recording.sink.record(event(1))
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(recording.close)
    state = log_states(tmp_path)[log.path]
    assert state.backlog == 1
    assert state.destination == "postgresql://127.0.0.1:1/none"
    assert (await verified(tmp_path)).problems == []


class Log:
    """A log that can be full."""

    def __init__(self) -> None:
        self.full = False
        self.events: list[Any] = []

    async def record(self, event: Any) -> None:
        if self.full:
            raise AuditUnavailableError("full")
        self.events.append(event)

    def record_later(self, event: Any) -> None:
        self.events.append(event)


async def test_a_lenient_sink_lets_calls_go_and_tells_of_the_gap_later() -> None:
    log = Log()
    sink = LenientSink(log)  # type: ignore[arg-type]
    await sink.record(event(1))
    log.full = True
    await sink.record(event(2))
    await sink.record(event(3))
    log.full = False
    await sink.record(event(4))
    await sink.record(event(5))
    sink.record_later(event(6))
    assert [one.event_id for one in log.events if one.kind == "decided"] == ["e00001", "e00004", "e00005", "e00006"]
    (gap,) = [one for one in log.events if one.kind == "audit_gap"]
    assert gap.detail["missed"] == 2


@pytest.mark.parametrize("mode", ["refuse", "allow"])
async def test_the_setting_decides_what_becomes_of_calls_that_cannot_be_recorded(mode: str, tmp_path: Path) -> None:
    log = DaemonLog(tmp_path)
    recording = AuditPipeline(settings(tmp_path, on_audit_failure=mode), log, adopts_all=True)
    log.close()
    if mode == "refuse":
        with pytest.raises(AuditUnavailableError):
            await recording.sink.record(event(1))
    else:
        await recording.sink.record(event(1))
    await asyncio.to_thread(recording.close)


def test_checkpoints_go_where_the_settings_say(tmp_path: Path) -> None:
    assert checkpoint_file(settings(tmp_path)) == tmp_path / CHECKPOINT_FILE
    given = settings(tmp_path, checkpoint_file=tmp_path / "own.jsonl", checkpoint_command="tee 'a b.jsonl'")
    signer = open_signer(given)
    assert signer._command == ["tee", "a b.jsonl"]
    signer._command = ()
    assert signer.sign("head", [Head("w", 1, "a" * 64)])
    assert json.loads((tmp_path / "own.jsonl").read_text())["writer"] == "w"


async def test_with_a_transparency_log_its_proof_is_kept_and_the_lead_alone_posts(tmp_path: Path) -> None:
    with start_rekor() as log:
        (tmp_path / "log.pem").write_bytes(log.pem)
        chosen = settings(tmp_path, transparency_log=log.url, transparency_key=tmp_path / "log.pem")
        for lead in (False, True):
            own = DaemonLog(tmp_path)
            recording = AuditPipeline(chosen, own, adopts_all=True, lead=lead)
            await recording.sink.record(event(1))
            if lead:
                assert await asyncio.to_thread(log.asked.wait, PATIENCE)
            await asyncio.to_thread(recording.close)
            assert log.asked.is_set() is lead
    with pytest.raises(ConfigError, match="needs transparency_key"):
        AuditPipeline(settings(tmp_path, transparency_log=log.url), own, adopts_all=True)


def test_a_destination_has_no_password(tmp_path: Path) -> None:
    assert destination(settings(tmp_path)) == "embedded"
    assert "geheim" not in destination(settings(tmp_path, database_url="postgresql://u:geheim@h/d"))
