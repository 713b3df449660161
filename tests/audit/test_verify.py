"""Tampering is found: edit, delete, reorder, cut off, rewrite, insert; in both stores and in local logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.audit.chain_reader import START as BEGINNING
from proxy.audit.chain_reader import ChainedEvent, StoreChains
from proxy.audit.checkpoints import Checkpoint, Signed, by_writer
from proxy.audit.event_store import Events
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import log_states
from proxy.audit.retention import prune
from proxy.audit.verify import ChainProblem, ChainVerifier, Report, expected
from proxy.core.event import Head, LogEntry, Written, link, start
from tests.support.trail_fixture import START, execute, move, sign, signed, signer, verified, write

COUNT = 30


@pytest.fixture
async def writer(tmp_path: Path, events: Events) -> str:
    """Thirty events in the store, with a checkpoint at 20 and one at the end; the writer's id."""
    write(tmp_path, range(1, 21))
    sign(tmp_path)
    head = write(tmp_path, range(21, COUNT + 1))
    sign(tmp_path)
    assert await move(tmp_path, events) == COUNT
    return head.writer


async def found(tmp_path: Path, events: Events) -> tuple[int | None, str | None, str]:
    """Return what is found: the number, the id, and what is wrong."""
    (problem,) = (await verified(tmp_path, events)).problems
    return problem.seq, problem.event_id, problem.what


async def rewrite(events: Events, writer: str, first: int, body_of: dict[int, str], last: int = COUNT) -> None:
    """Put other texts in the place of events, and compute every link anew."""
    rows = {row.entry.seq: row.entry for row in await StoreChains(events).page(writer, BEGINNING)}
    tip = rows[first - 1].chain if first > 1 else start(writer).hash
    for seq in range(first, last + 1):
        body = body_of.get(seq, rows[seq].body)
        tip = link(tip or "", seq, body)
        await execute(events, "UPDATE events SET body = $1, chain = $2 WHERE seq = $3", body, tip, seq)


async def test_what_nobody_touched_is_good(tmp_path: Path, events: Events, writer: str) -> None:
    report = await verified(tmp_path, events)
    assert (report.problems, report.unsigned, report.checked) == ([], [], COUNT)
    (one,) = report.writers
    assert (one.writer, one.proven, one.signed) == (writer, COUNT, True)
    assert expected(signed(tmp_path)) == COUNT


async def test_an_edit_of_the_text_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, "UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 7")
    assert await found(tmp_path, events) == (7, "e00007", "altered")


@pytest.mark.parametrize(
    "change",
    [
        "decision = 'allow'",
        "agent = 'mallory'",
        "tool = NULL",
        "kind = 'completed'",
        "arguments = '{}'",
        "rules = '[]'",
        "is_error = true",
        "gate_ms = 1.5",
        "result_size = 1",
    ],
)
async def test_an_edit_of_a_column_alone_is_found(change: str, tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, f"UPDATE events SET {change} WHERE seq = 7")
    assert await found(tmp_path, events) == (7, "e00007", "altered")


async def test_an_edit_of_the_link_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, "UPDATE events SET chain = $1 WHERE seq = 7", "0" * 64)
    assert await found(tmp_path, events) == (7, "e00007", "altered")


@pytest.mark.parametrize(("which", "seq"), [("seq = 7", 7), ("seq = 1", 1), ("seq BETWEEN 7 AND 12", 7)])
async def test_a_deletion_is_found(which: str, seq: int, tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, f"DELETE FROM events WHERE {which}")
    assert await found(tmp_path, events) == (seq, None, "missing")


async def test_a_reordering_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, "UPDATE events SET seq = 15 - seq WHERE seq IN (7, 8)")
    assert await found(tmp_path, events) == (7, "e00008", "altered")


@pytest.mark.parametrize("first", [COUNT, 25, 21, 15, 1])
async def test_a_cut_at_the_end_is_found(first: int, tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, "DELETE FROM events WHERE seq >= $1", first)
    assert await found(tmp_path, events) == (first, None, "missing")


@pytest.mark.parametrize(("first", "signed_at"), [(7, 20), (20, 20), (21, 30), (30, 30)])
async def test_a_rewrite_with_new_links_is_found(
    first: int, signed_at: int, tmp_path: Path, events: Events, writer: str
) -> None:
    await execute(events, "UPDATE events SET decision = 'allow' WHERE seq = $1", first)
    rows = await StoreChains(events).page(writer, (first, "", 0.0))
    await rewrite(events, writer, first, {first: rows[0].entry.body.replace("deny", "allow")})
    assert await found(tmp_path, events) == (signed_at, f"e{signed_at:05}", "rewritten")


async def test_a_deletion_with_new_numbers_and_links_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, "DELETE FROM events WHERE seq = 7")
    for seq in range(8, COUNT + 1):
        await execute(events, "UPDATE events SET seq = $1 WHERE seq = $2", seq - 1, seq)
    await rewrite(events, writer, 1, {}, COUNT - 1)
    assert await found(tmp_path, events) == (20, "e00021", "rewritten")


async def test_a_writer_that_is_gone_altogether_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await execute(events, "DELETE FROM events")
    assert await found(tmp_path, events) == (1, None, "missing")


async def insert(events: Events, number: int, **columns: Any) -> None:
    body = json.dumps({"event_id": f"x{number}", "time": START + number, "kind": "odd"})
    names = {"event_id": f"x{number}", "ts": START + number, "kind": "odd", "body": body} | columns
    marks = ", ".join(f"${place}" for place in range(1, len(names) + 1))
    await execute(events, f"INSERT INTO events ({', '.join(names)}) VALUES ({marks})", *names.values())


async def test_an_event_that_was_put_in_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await insert(events, 7, writer=writer, seq=7, chain="0" * 64)
    assert await found(tmp_path, events) == (7, "x7", "repeated")


async def test_an_event_put_in_at_the_end_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await insert(events, 31, writer=writer, seq=31, chain="0" * 64)
    assert await found(tmp_path, events) == (31, "x31", "altered")


async def test_an_event_of_no_chain_is_found(tmp_path: Path, events: Events, writer: str) -> None:
    await insert(events, 99)
    assert await found(tmp_path, events) == (None, "x99", "unchained")


async def test_a_writer_nobody_vouches_for_is_told(tmp_path: Path, events: Events, writer: str) -> None:
    body = json.dumps({"event_id": "x1", "time": START + 1, "kind": "odd"})
    forged = link(start("forged").hash, 1, body)
    await insert(events, 1, writer="forged", seq=1, chain=forged)
    report = await verified(tmp_path, events)
    assert ([one.what for one in report.problems], report.unsigned) == (["unregistered"], ["forged"])


async def test_two_signed_histories_are_told(tmp_path: Path, events: Events, writer: str) -> None:
    assert signer(tmp_path).sign("head", [Head(writer, 25, "0" * 64), Head(writer, 25, "1" * 64)])
    report = await verified(tmp_path, events)
    assert [problem.what for problem in report.problems] == ["rewritten"]


async def test_what_is_still_in_the_log_is_verified_with_the_store(tmp_path: Path, events: Events, writer: str) -> None:
    write(tmp_path, range(31, 41))
    sign(tmp_path)
    report = await verified(tmp_path, events)
    assert (report.problems, report.checked) == ([], 40)
    with_log(tmp_path, "UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 35")
    assert await found(tmp_path, events) == (35, "e00035", "altered")


async def test_a_trail_of_many_pages_is_good(
    tmp_path: Path, events: Events, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.audit.chain_reader.LIMIT", 7)
    write(tmp_path, range(31, 61))
    report = await verified(tmp_path, events)
    assert (report.problems, report.checked) == ([], 60)
    await execute(events, "DELETE FROM events WHERE seq = 14")
    assert await found(tmp_path, events) == (14, None, "missing")


@pytest.mark.parametrize("seq", [7, 14, 9])
async def test_a_second_row_under_an_events_id_is_found_wherever_a_page_ends(
    seq: int, tmp_path: Path, events: Events, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.audit.chain_reader.LIMIT", 7)
    entry = (await StoreChains(events).page(writer, (seq - 1, "~", 0.0)))[0].entry
    forged = json.loads(entry.body) | {"time": START + seq + 1000, "tool": "forged"}
    assert await events.write([LogEntry(json.dumps(forged), writer, seq, entry.chain)]) == Written(1)
    assert (await found(tmp_path, events))[2] in {"repeated", "altered"}


class TestPruned:
    async def test_what_retention_let_go_is_not_missed(self, tmp_path: Path, events: Events, writer: str) -> None:
        assert (await prune(events, START + 11, signer(tmp_path))).gone == 10
        report = await verified(tmp_path, events)
        assert (report.problems, report.checked) == ([], 20)
        assert report.writers[0].proven == COUNT

    async def test_everything_may_go(self, tmp_path: Path, events: Events, writer: str) -> None:
        assert (await prune(events, START + 100, signer(tmp_path))).gone == COUNT
        assert (await verified(tmp_path, events)).problems == []
        write(tmp_path, [31])
        assert (await verified(tmp_path, events)).problems == []

    async def test_what_comes_after_is_still_proven(self, tmp_path: Path, events: Events, writer: str) -> None:
        await prune(events, START + 11, signer(tmp_path))
        await execute(events, "DELETE FROM events WHERE seq = 11")
        assert await found(tmp_path, events) == (11, None, "missing")

    async def test_an_edit_of_the_first_that_stayed_is_found(self, tmp_path: Path, events: Events, writer: str) -> None:
        await prune(events, START + 11, signer(tmp_path))
        await execute(events, "UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 11")
        assert await found(tmp_path, events) == (11, "e00011", "altered")

    async def test_times_out_of_order_leave_no_holes(self, tmp_path: Path, events: Events) -> None:
        write(tmp_path, [1, 12, 2, 13, 3, 14, 15])
        sign(tmp_path)
        await move(tmp_path, events)
        assert (await prune(events, START + 10, signer(tmp_path))).gone == 1
        report = await verified(tmp_path, events)
        assert (report.problems, report.checked) == ([], 6)

    async def test_nothing_is_pruned_where_no_checkpoint_can_be_written(
        self, tmp_path: Path, events: Events, writer: str
    ) -> None:
        from proxy.audit.checkpoint_signer import CheckpointSigner
        from proxy.errors import AuditUnavailableError

        (tmp_path / "file").write_text("")
        broken = CheckpointSigner(tmp_path, tmp_path / "file" / "below")
        with pytest.raises(AuditUnavailableError, match="nothing was pruned"):
            await prune(events, START + 11, broken)
        assert (await verified(tmp_path, events)).checked == COUNT


def with_log(state_dir: Path, sql: str) -> None:
    connection = apsw.Connection(str(state_dir / LOG_FILE))
    connection.execute(sql)
    connection.close()


SWAP = """
    UPDATE events SET seq = 100 WHERE seq = 4;
    UPDATE events SET seq = 4 WHERE seq = 5;
    UPDATE events SET seq = 5 WHERE seq = 100
"""


class TestLocalLogs:
    @pytest.fixture(autouse=True)
    def log(self, tmp_path: Path) -> None:
        write(tmp_path, range(1, 11))
        sign(tmp_path)

    async def test_a_log_that_nobody_touched_is_good(self, tmp_path: Path) -> None:
        report = await verified(tmp_path)
        assert (report.problems, report.checked) == ([], 10)

    @pytest.mark.parametrize(
        ("sql", "seq", "what"),
        [
            ("UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 4", 4, "altered"),
            ("DELETE FROM events WHERE seq = 4", 4, "missing"),
            ("DELETE FROM events WHERE seq > 6", 7, "missing"),
            ("DELETE FROM events", 1, "missing"),
            ("DELETE FROM events; UPDATE log SET moved = 10", 1, "missing"),
            (SWAP, 4, "altered"),
        ],
    )
    async def test_tampering_is_found(self, sql: str, seq: int, what: str, tmp_path: Path) -> None:
        with_log(tmp_path, sql)
        (problem,) = (await verified(tmp_path)).problems
        assert (problem.seq, problem.what) == (seq, what)

    async def test_a_rewrite_is_found(self, tmp_path: Path) -> None:
        state = log_states(tmp_path)[tmp_path / LOG_FILE]
        connection = apsw.Connection(str(tmp_path / LOG_FILE))
        tip = start(state.head.writer).hash
        for seq, body in list(connection.execute("SELECT seq, body FROM events ORDER BY seq")):
            forged = body.replace("deny", "allow")
            tip = link(tip, seq, forged)
            connection.execute("UPDATE events SET body = ?, chain = ? WHERE seq = ?", (forged, tip, seq))
        connection.close()
        (problem,) = (await verified(tmp_path)).problems
        assert (problem.seq, problem.event_id, problem.what) == (10, "e00010", "rewritten")

    async def test_what_the_log_moved_must_be_in_the_store(self, tmp_path: Path, events: Events) -> None:
        (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()
        await move(tmp_path, events)
        (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()
        assert (await verified(tmp_path, events)).problems == []
        await execute(events, "DELETE FROM events WHERE seq = 10")
        assert await found(tmp_path, events) == (10, None, "missing")


def test_a_report_of_nothing_says_nothing() -> None:
    assert (Report().problems, Report().unsigned, Report().checked) == ([], [], 0)


def chain(count: int, writer: str = "w") -> list[ChainedEvent]:
    tip, found = start(writer).hash, []
    for seq in range(1, count + 1):
        tip = link(tip, seq, f"body {seq}")
        found.append(ChainedEvent(LogEntry(f"body {seq}", writer, seq, tip), f"e{seq}"))
    return found


def checkpoint(event: ChainedEvent, kind: str = "head") -> Checkpoint:
    assert event.entry.seq is not None
    return Checkpoint(kind, "w", event.entry.seq, event.entry.chain or "", "1.000000", "k")


def walked(
    events: list[ChainedEvent], *checkpoints: Checkpoint, head: Head | None = None
) -> tuple[ChainVerifier, ChainProblem | None]:
    walk = ChainVerifier("w", by_writer(checkpoints).get("w", Signed()), head)
    problem = next(filter(None, map(walk.check, events)), None)
    return walk, problem or walk.end()


def test_a_chain_without_checkpoints_holds_together_but_proves_nothing() -> None:
    walk, problem = walked(chain(5))
    assert (problem, walk.checked, walk.proven) == (None, 5, 0)


def test_the_last_checkpoint_says_how_far_it_is_proven() -> None:
    events = chain(5)
    walk, problem = walked(events, checkpoint(events[1]), checkpoint(events[3]))
    assert (problem, walk.proven) == (None, 4)


def test_a_rejected_event_may_be_missing_and_no_other() -> None:
    events = chain(5)
    walk, problem = walked([*events[:2], *events[3:]], checkpoint(events[2], "rejected"))
    assert (problem, walk.checked, walk.set_aside) == (None, 4, 1)
    _, problem = walked([*events[:3], *events[4:]], checkpoint(events[2], "rejected"))
    assert problem is not None
    assert (problem.seq, problem.what) == (4, "missing")


def test_a_rejected_event_at_the_end_is_not_missed() -> None:
    events = chain(3)
    _, problem = walked(events[:2], checkpoint(events[2], "rejected"))
    assert problem is None


def test_an_event_after_a_rejected_one_must_follow_from_it() -> None:
    events, other = chain(5), chain(5, "other")
    _, problem = walked([*events[:2], *other[3:]], checkpoint(events[2], "rejected"))
    assert problem is not None
    assert (problem.seq, problem.what) == (4, "altered")


def test_pruned_events_may_be_missing_in_part() -> None:
    events = chain(9)
    walk, problem = walked([events[1], events[3], *events[5:]], checkpoint(events[4], "pruned"))
    assert (problem, walk.checked) == (None, 6)


def test_a_checkpoint_of_another_history_is_a_fork() -> None:
    events, other = chain(5), chain(5, "other")
    _, problem = walked(events, checkpoint(events[4]), checkpoint(other[4]))
    assert problem is not None
    assert (problem.seq, problem.what) == (5, "forked")


def test_an_event_without_a_place_is_told() -> None:
    _, problem = walked([ChainedEvent(LogEntry("x", "w", None, None), "e")])
    assert problem is not None
    assert (problem.event_id, problem.what) == ("e", "unchained")


def test_the_logs_own_head_must_be_the_last_link() -> None:
    events = chain(3)
    good = Head("w", 3, events[2].entry.chain or "")
    assert walked(events, head=good)[1] is None
    _, problem = walked(events, head=Head("w", 3, "0" * 64))
    assert problem is not None
    assert (problem.seq, problem.what) == (3, "rewritten")
