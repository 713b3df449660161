"""The local durable log: acknowledged means on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.audit import local_log as log_room
from proxy.audit.commit_pace import CommitPace
from proxy.audit.local_log import MAX_BATCH, LocalLog, read_log
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError
from tests.support.timeouts import PATIENCE


def event(number: int = 0, **fields: object) -> AuditEvent:
    return AuditEvent(**{"event_id": str(number), "kind": "decided", "time": 1.5, **fields})  # type: ignore[arg-type]


def ids(path: Path) -> list[str]:
    return [stored["event_id"] for _, stored in read_log(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "events.db"


@pytest.fixture
def sink(path: Path, request: pytest.FixtureRequest) -> Iterator[LocalLog]:
    log = LocalLog(path, direct=getattr(request, "param", False))
    yield log
    log.close()


both = pytest.mark.parametrize("sink", [False, True], indirect=True, ids=["by the writer", "direct"])


@both
async def test_another_connection_sees_an_event_once_it_is_acknowledged(sink: LocalLog, path: Path) -> None:
    for number in range(5):
        await sink.record(event(number))
        assert ids(path)[-1] == str(number)


direct = pytest.mark.parametrize("sink", [True], indirect=True)


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The thread of each commit."""
    names: list[str] = []
    write = LocalLog._write

    def noted(self: LocalLog, entries: list[log_room._Encoded]) -> Exception | None:
        names.append(threading.current_thread().name)
        return write(self, entries)

    monkeypatch.setattr(LocalLog, "_write", noted)
    return names


async def writer_is_idle(sink: LocalLog) -> None:
    """Wait until the writer has nothing to do any more."""
    await asyncio.to_thread(sink.change, lambda _: None)
    async with asyncio.timeout(PATIENCE):
        while sink._waiting:
            await asyncio.sleep(0)


@direct
async def test_a_direct_log_commits_in_the_callers_thread_with_what_gathered(
    sink: LocalLog, path: Path, writers: list[str], commits: list[int]
) -> None:
    await writer_is_idle(sink)
    await sink.record(event(1))
    sink.record_later(event(2))
    await sink.record(event(3))
    assert ids(path) == ["1", "2", "3"]
    assert writers == ["MainThread"] * 2
    assert commits == [1, 2]


@both
async def test_a_commit_is_left_to_the_writer_while_that_has_the_disk(
    sink: LocalLog, path: Path, writers: list[str]
) -> None:
    await writer_is_idle(sink)
    with sink._disk:
        waiting = asyncio.create_task(sink.record(event(1)))
        async with asyncio.timeout(PATIENCE):
            while not sink._waiting:
                await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, PATIENCE)
    assert ids(path) == ["1"]
    assert writers == ["audit-log"]


def always_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every turn of the event loop for one that had nothing else to do, however slow this machine is."""
    monkeypatch.setattr("proxy.audit.local_log.QUIET_SECONDS", 1000.0)


async def test_a_caller_alone_is_served_in_its_own_thread_with_what_gathered_before(
    sink: LocalLog, path: Path, writers: list[str], commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    always_quiet(monkeypatch)
    await writer_is_idle(sink)
    await sink.record(event(1))
    sink.record_later(event(2))
    await sink.record(event(3))
    assert ids(path) == ["1", "2", "3"]
    assert writers == ["MainThread"] * 2
    assert commits == [1, 2]


async def test_two_callers_are_served_by_the_writer_in_one_commit(
    sink: LocalLog, path: Path, writers: list[str], commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    always_quiet(monkeypatch)
    await writer_is_idle(sink)
    await asyncio.gather(sink.record(event(1)), sink.record(event(2)))
    assert ids(path) == ["1", "2"]
    assert writers == ["audit-log"]
    assert commits == [2]


@both
async def test_a_call_goes_on_its_way_before_its_line_is_written(
    sink: LocalLog, writers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    monkeypatch.setattr("proxy.audit.local_log.log_decisions", lambda events: happened.append(f"{len(events)} lines"))
    always_quiet(monkeypatch)
    await writer_is_idle(sink)
    await sink.record(event(1))
    happened.append("on its way")
    await asyncio.sleep(0)
    assert happened[-2:] == ["on its way", "1 lines"]
    assert writers == ["MainThread"]


@direct
async def test_what_the_writer_has_not_done_comes_first(sink: LocalLog, path: Path) -> None:
    await writer_is_idle(sink)
    busy, go_on = threading.Event(), threading.Event()

    def hold_up(_: object) -> None:
        busy.set()
        go_on.wait(PATIENCE)

    changing = asyncio.create_task(asyncio.to_thread(sink.change, hold_up))
    await asyncio.to_thread(busy.wait, PATIENCE)
    await asyncio.to_thread(sink.record_later, event(1))
    waiting = asyncio.create_task(sink.record(event(2)))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(changing, waiting), PATIENCE)
    assert ids(path) == ["1", "2"]


@both
async def test_on_a_slow_disk_the_writers_thread_commits(
    sink: LocalLog, path: Path, writers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer_is_idle(sink)
    sink._pace = CommitPace(-1.0)
    always_quiet(monkeypatch)
    monkeypatch.setattr("proxy.audit.commit_pace.REST_SECONDS", 1000.0)
    for number in range(5):
        await sink.record(event(number))
    assert ids(path) == [str(number) for number in range(5)]
    assert writers == ["MainThread"] * 3 + ["audit-log"] * 2


@both
async def test_an_event_that_cannot_be_spelt_is_refused_and_loses_none_before_it(sink: LocalLog, path: Path) -> None:
    await sink.record(event(1))
    sink.record_later(event(2))
    with pytest.raises(AuditUnavailableError, match="serializable"):
        await sink.record(event(3, detail={"odd": object()}))
    await sink.record(event(4))
    assert ids(path) == ["1", "2", "4"]


@pytest.mark.parametrize("by_itself", [False, True])
async def test_a_log_that_is_closed_meanwhile_refuses(
    path: Path, by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_quiet(monkeypatch)
    sink = LocalLog(path, direct=by_itself)
    await sink.record(event(1))
    await asyncio.to_thread(sink.close)
    sink._closed = False  # as for one who looked a moment earlier
    with pytest.raises(AuditUnavailableError):
        await asyncio.wait_for(sink.record(event(2)), PATIENCE)
    assert ids(path) == ["1"]


WRITER = """
import asyncio, os, sys
from pathlib import Path
from proxy.core.model import AuditEvent
from proxy.audit.local_log import LocalLog

async def main():
    log = LocalLog(Path(sys.argv[1]), direct=sys.argv[2] == "True")
    for number in range(10_000):
        await log.record(AuditEvent(event_id=str(number), kind="decided", time=0.0))
        os.write(1, f"{number}\\n".encode())

asyncio.run(main())
"""


@pytest.mark.parametrize("by_itself", [False, True])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(path: Path, by_itself: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(by_itself)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout.read().splitlines()]
    stored = [int(number) for number in ids(path)]
    assert set(acknowledged) <= set(stored)
    assert stored == list(range(len(stored)))


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events went into each commit."""
    batches: list[int] = []
    write = LocalLog._write

    def counted(self: LocalLog, entries: list[object]) -> Exception | None:
        batches.append(len(entries))
        return write(self, entries)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalLog, "_write", counted)
    return batches


async def test_many_waiting_calls_share_commits(sink: LocalLog, path: Path, commits: list[int]) -> None:
    await asyncio.gather(*(sink.record(event(number)) for number in range(200)))
    assert ids(path) == [str(number) for number in range(200)]
    assert sum(commits) == 200
    assert len(commits) < 100
    assert max(commits) <= MAX_BATCH


async def test_while_the_loop_is_busy_events_gather_for_a_bounded_time(
    path: Path, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_room, "QUIET_SECONDS", -1.0)  # as if every turn of the loop had work
    monkeypatch.setattr(log_room, "GATHER_SECONDS", (1.0, 2.0))
    sink = LocalLog(path)

    async def after_turns(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        await sink.record(event(number))

    await asyncio.wait_for(asyncio.gather(*map(after_turns, range(20))), 30)
    assert commits == [20]
    assert sink._patience == 2.0
    monkeypatch.setattr(log_room, "QUIET_SECONDS", 1000.0)  # as if none had
    await sink.record(event(20))
    assert sink._patience == 1.0
    sink.close()
    assert ids(path) == [str(number) for number in range(21)]


async def test_one_caller_by_itself_is_not_kept_waiting_for_others(
    path: Path, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_room, "GATHER_SECONDS", (1000.0, 1000.0))
    monkeypatch.setattr(log_room, "QUIET_SECONDS", 0.01)
    sink = LocalLog(path)
    for number in range(20):
        await asyncio.wait_for(sink.record(event(number)), 30)
    assert commits == [1] * 20
    sink.close()


async def test_an_event_that_nobody_waits_for_goes_with_the_next_one(
    sink: LocalLog, path: Path, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_room, "LATER_SECONDS", 1000.0)
    await sink.record(event(0))
    for number in range(1, 6):
        sink.record_later(event(number))
        await asyncio.sleep(0)
    await sink.record(event(6))
    assert commits == [1, 6]
    sink.record_later(event(7))
    sink.close()
    assert commits == [1, 6, 1]
    assert ids(path) == [str(number) for number in range(8)]


async def test_an_event_that_nobody_waits_for_is_soon_on_disk_all_the_same(sink: LocalLog, path: Path) -> None:
    await sink.record(event(0))
    for number in (1, 2):
        sink.record_later(event(number))
        async with asyncio.timeout(PATIENCE):
            while len(ids(path)) <= number:
                await asyncio.sleep(0.01)
    assert ids(path) == ["0", "1", "2"]


async def test_an_event_from_another_thread_needs_no_loop(sink: LocalLog, path: Path) -> None:
    await sink.record(event(0))
    await asyncio.to_thread(sink.record_later, event(1))
    await sink.record(event(2))
    assert sorted(ids(path)) == ["0", "1", "2"]


@both
async def test_order_is_kept_between_events_that_wait_and_events_that_do_not(sink: LocalLog, path: Path) -> None:
    for number in range(0, 20, 2):
        sink.record_later(event(number))
        await sink.record(event(number + 1))
    assert ids(path) == [str(number) for number in range(20)]


async def fill(sink: LocalLog, fields: dict[str, object]) -> int:
    """Record until the log refuses; return how many events it took."""
    for number in range(1000):
        try:
            await sink.record(event(number, **fields))
        except AuditUnavailableError:
            return number
    raise AssertionError("the log has no bound")


async def test_a_full_log_refuses_and_keeps_what_it_has(path: Path) -> None:
    sink = LocalLog(path, max_bytes=100_000)
    big = {"arguments": {"x": "y" * 3000}}
    acknowledged = await fill(sink, big)
    assert acknowledged > 10
    with pytest.raises(AuditUnavailableError, match="full"):
        await sink.record(event(5000, **big))
    sink.close()
    assert ids(path)[:acknowledged] == [str(number) for number in range(acknowledged)]
    assert path.stat().st_size <= 110_000


async def test_a_log_with_room_again_takes_events_again(path: Path) -> None:
    sink = LocalLog(path, max_bytes=100_000)
    big = {"arguments": {"x": "y" * 3000}}
    taken = await fill(sink, big)
    await asyncio.to_thread(sink.discard, taken, {})
    await sink.record(event(7, **big))
    sink.close()
    assert ids(path) == ["7"]


@pytest.mark.parametrize("odd", ["\ud800", "a\udcffb", "\0", "é\U0001f600", '"\\'])
async def test_no_text_stops_the_writer(odd: str, sink: LocalLog, path: Path) -> None:
    await sink.record(event(1, method=odd, session=odd, arguments={odd: [odd]}))
    sink.record_later(event(2, detail={"x": odd}))
    await sink.record(event(3))
    assert ids(path) == ["1", "2", "3"]
    [(_, stored)] = [*read_log(path, last=3)][:1]
    assert stored["method"] == odd.encode("utf-8", "replace").decode()


@both
async def test_an_error_of_any_kind_is_told_and_the_writer_lives_on(
    sink: LocalLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.audit.local_log_sql._insert_sql", lambda _: "INSERT INTO nowhere VALUES (?)")
    with pytest.raises(AuditUnavailableError, match="nowhere"):
        await sink.record(event(1))
    monkeypatch.setattr("proxy.audit.local_log_sql._insert_sql", 5)
    with pytest.raises(AuditUnavailableError):
        await sink.record(event(2))
    monkeypatch.undo()
    await sink.record(event(3))
    assert ids(path) == ["3"]


async def test_an_event_that_cannot_be_spelt_is_refused_by_itself(sink: LocalLog, path: Path) -> None:
    others = [asyncio.create_task(sink.record(event(number))) for number in (1, 2)]
    with pytest.raises(AuditUnavailableError):
        await sink.record(event(3, detail={"odd": object()}))
    await asyncio.gather(*others)
    assert sorted(ids(path)) == ["1", "2"]


async def test_a_caller_that_gives_up_waiting_harms_nobody(sink: LocalLog, path: Path) -> None:
    waiting = asyncio.create_task(sink.record(event(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await sink.record(event(2))
    assert ids(path) == ["1", "2"]


@both
def test_what_one_loop_leaves_another_need_not_wait_for(sink: LocalLog, path: Path) -> None:
    def leave() -> None:
        sink.record_later(event(2))
        first.stop()

    first = asyncio.new_event_loop()
    first.run_until_complete(sink.record(event(1)))
    first.call_soon(leave)
    first.run_forever()
    asyncio.run(asyncio.wait_for(sink.record(event(3)), PATIENCE))
    first.close()
    assert len(ids(path)) == 3


async def test_closing_writes_what_is_queued(path: Path) -> None:
    sink = LocalLog(path)
    for number in range(700):
        sink.record_later(event(number))
    sink.close()
    sink.close()
    assert ids(path) == [str(number) for number in range(700)]


async def test_a_closed_log_refuses(path: Path) -> None:
    sink = LocalLog(path)
    sink.close()
    with pytest.raises(AuditUnavailableError, match="closed"):
        await sink.record(event())
    sink.record_later(event())
    assert ids(path) == []


async def test_who_records_while_it_is_being_closed_is_refused_and_does_not_wait_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_room, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(log_room, "GATHER_SECONDS", (0.1, 0.1))
    sink = LocalLog(path)
    early = asyncio.create_task(sink.record(event(1)))
    await asyncio.sleep(0)
    sink.record_later(event(2))
    await asyncio.to_thread(sink.close)
    await asyncio.wait_for(early, 30)
    sink._closed = False  # as for one who looked a moment earlier
    with pytest.raises(AuditUnavailableError, match="closed"):
        await asyncio.wait_for(sink.record(event(3)), 30)
    await asyncio.to_thread(sink.record_later, event(4))
    assert ids(path) == ["1", "2"]


async def test_a_second_start_goes_on_where_the_first_ended(path: Path) -> None:
    for number in range(3):
        sink = LocalLog(path)
        await sink.record(event(number))
        sink.close()
    assert [(seq, stored["event_id"]) for seq, stored in read_log(path, after=1)] == [(2, "1"), (3, "2")]


async def test_only_the_owner_can_read_the_files(path: Path) -> None:
    before = os.umask(0)
    try:
        sink = LocalLog(path)
        await sink.record(event())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        sink.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert {"events.db", "events.db-wal"} <= modes.keys()


async def test_the_last_events_are_given_oldest_first(sink: LocalLog, path: Path) -> None:
    for number in range(5):
        await sink.record(event(number))
    assert [(seq, stored["event_id"]) for seq, stored in read_log(path, last=2)] == [(4, "3"), (5, "4")]
    assert [seq for seq, _ in read_log(path, after=3)] == [4, 5]


@pytest.mark.parametrize("content", [b"not a database, certainly not one" * 50, None], ids=["garbage", "folder"])
def test_a_file_that_is_no_log_is_named_with_the_way_out(path: Path, content: bytes | None) -> None:
    if content is None:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(AuditUnavailableError, match=r"events\.db.*--state-dir"):
        LocalLog(path)
    with pytest.raises(AuditUnavailableError, match=r"events\.db"):
        list(read_log(path))


async def tried(sink: LocalLog) -> None:
    """Have the log tried, and wait for that: of what is waiting a discard comes first, the one after it later."""
    sink.try_again()
    for _ in range(2):
        await asyncio.to_thread(sink.discard, 0, {})


async def test_a_problem_is_known_until_the_log_can_be_written_again(path: Path) -> None:
    sink = LocalLog(path, max_bytes=100_000)
    assert sink.problem is None
    big = {"arguments": {"x": "y" * 3000}}
    taken = await fill(sink, big)
    assert "full" in (sink.problem or "")
    await tried(sink)
    assert "full" in (sink.problem or "")
    await asyncio.to_thread(sink.discard, taken, {})
    await tried(sink)
    assert sink.problem is None
    await sink.record(event(7))
    sink.close()
    assert ids(path) == ["7"], "a trial leaves nothing behind"
    sink.try_again()
