"""A short version of each scene of `make faults`: nothing acknowledged is lost or doubled, and no chain breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import scenes
from tests.faults.scenes import Counts
from tests.support.postgres import Postgres


def check(counts: Counts) -> None:
    assert counts.good, counts
    assert counts.stored >= counts.executed >= counts.acknowledged


@pytest.mark.parametrize("kind", ["embedded", "postgres"])
def test_a_proxy_that_is_killed_again_and_again_loses_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("database_url") if kind == "postgres" else None
    check(scenes.killed(tmp_path, url, seconds=0, calls=100))


def test_an_outage_of_postgres_stops_no_call_and_loses_nothing(tmp_path: Path, postgres: Postgres) -> None:
    counts = scenes.outage(tmp_path, postgres, seconds=0, calls=100)
    check(counts)
    assert counts.refused == 0


def test_connections_cut_at_a_commit_neither_lose_nor_double(tmp_path: Path, database_url: str) -> None:
    check(scenes.cuts(tmp_path, database_url, times=2, calls=100))


def test_a_full_disk_refuses_calls_and_loses_none_that_it_took(tmp_path: Path) -> None:
    if not scenes.can_mount(tmp_path):
        pytest.skip("only root can mount a small disk")
    counts = scenes.disk_full(tmp_path, times=1, calls=50)
    check(counts)
    assert counts.refused > 0


def test_a_clock_that_jumps_loses_nothing(tmp_path: Path, database_url: str) -> None:
    check(scenes.clock_jumps(tmp_path, database_url, calls=200))


def test_a_collector_in_trouble_refuses_no_call_and_misses_no_event(tmp_path: Path) -> None:
    counts = scenes.collector(tmp_path, calls=50, troubles=scenes.TROUBLES[:1])
    check(counts)
    assert counts.refused == 0


def test_the_count_sees_what_is_lost_doubled_or_broken(tmp_path: Path, database_url: str, postgres: Postgres) -> None:
    with scenes.scene("count", tmp_path, database_url) as set_up:
        with set_up.proxy() as proxy, set_up.load(proxy):
            set_up.reach(20)
        check(set_up.finish())
        of = "(SELECT event_id FROM events WHERE kind = 'decided' AND arguments ? 'mark' ORDER BY seq LIMIT 1)"
        again = f"SELECT 'x', ts, kind, body FROM events WHERE event_id = {of}"
        postgres.psql(f"INSERT INTO events (event_id, ts, kind, body) {again}", database_url)
        doubled = set_up.count()
        assert (doubled.lost, doubled.duplicated, doubled.chain_breaks) == (0, 1, 1)
        postgres.psql(f"DELETE FROM events WHERE event_id IN ('x', {of})", database_url)
        lost = set_up.count()
        assert (lost.lost, lost.duplicated, lost.chain_breaks) == (1, 0, 1)
        assert not lost.good
