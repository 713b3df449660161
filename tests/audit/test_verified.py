"""What was verified is signed, and not read again; what nobody signed is read from the beginning."""

from __future__ import annotations

from pathlib import Path

from proxy.audit.chain_reader import AllChains, LogChains, StoreChains
from proxy.audit.event_store import Events
from proxy.audit.verified import VERIFIED_FILE, read_verified, write_verified
from proxy.audit.verify import Evidence, Report, verify
from tests.support.trail_fixture import START, execute, move, sign, signed, write


async def since_last(state_dir: Path, events: Events) -> Report:
    chains = AllChains(LogChains(state_dir), StoreChains(events))
    report = await verify(chains, Evidence(signed(state_dir)), anchors=read_verified(state_dir))
    write_verified(state_dir, report)
    return report


async def test_only_what_is_new_is_read(tmp_path: Path, events: Events) -> None:
    write(tmp_path, range(1, 11))
    await move(tmp_path, events)
    assert (await since_last(tmp_path, events)).checked == 10
    write(tmp_path, range(11, 14))
    await move(tmp_path, events)
    report = await since_last(tmp_path, events)
    assert (report.problems, report.checked, report.writers[0].after) == ([], 3, 10)
    await execute(events, "UPDATE events SET body = replace(body, 'deny', 'none') WHERE seq = 2")
    assert (await since_last(tmp_path, events)).problems == [], "it is not read"
    await execute(events, "DELETE FROM events WHERE seq = 13")
    write(tmp_path, range(14, 16))
    await move(tmp_path, events)
    assert (await since_last(tmp_path, events)).problems == [], "it was verified before"
    await execute(events, "DELETE FROM events WHERE seq = 15")
    assert (await since_last(tmp_path, events)).problems == []
    write(tmp_path, range(16, 18))
    await move(tmp_path, events)
    await execute(events, "DELETE FROM events WHERE seq = 17")
    (problem,) = (await since_last(tmp_path, events)).problems
    assert (problem.seq, problem.what) == (17, "missing")
    (problem,) = (await since_last(tmp_path, events)).problems
    assert (problem.seq, problem.what) == (2, "altered"), "what was bad is read from the beginning"


async def test_a_line_that_was_changed_counts_for_nothing(tmp_path: Path, events: Events) -> None:
    write(tmp_path, range(1, 4))
    await move(tmp_path, events)
    await since_last(tmp_path, events)
    file = tmp_path / VERIFIED_FILE
    file.write_text(file.read_text().replace('"seq": 3', '"seq": 2'))
    assert read_verified(tmp_path) == {}
    assert (await since_last(tmp_path, events)).checked == 3


async def test_no_further_than_a_signature_and_not_without_a_key(tmp_path: Path) -> None:
    head = write(tmp_path, range(1, 4))
    report = await verify(LogChains(tmp_path), Evidence({}))
    write_verified(tmp_path, report)
    assert not (tmp_path / "keys" / "audit-signing.pem").exists()
    sign(tmp_path)
    write(tmp_path, [4])
    write_verified(tmp_path, await verify(LogChains(tmp_path), Evidence(signed(tmp_path))))
    assert read_verified(tmp_path) == {head.writer: head}


def test_the_anchor_of_a_time_is_the_last_head_before_it(tmp_path: Path) -> None:
    head = write(tmp_path, [1])
    sign(tmp_path)
    said = signed(tmp_path)[head.writer]
    (at,) = said.times.values()
    assert said.anchor(head.writer, at) == head
    assert said.anchor(head.writer, at - 1) is None
    assert at > START
