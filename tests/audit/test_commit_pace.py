"""When the event loop's own thread should not commit."""

from __future__ import annotations

import time

from proxy.audit.commit_pace import REST_SECONDS, SLOW_IN_A_ROW, CommitPace

SLOW_SECONDS = 0.02


def test_it_rests_after_several_slow_commits_in_a_row_and_only_for_a_while() -> None:
    pace, now = CommitPace(SLOW_SECONDS), time.monotonic()
    for _ in range(SLOW_IN_A_ROW):
        assert not pace.rests(now)
        pace.note(now - 2 * SLOW_SECONDS)
    assert pace.rests(now)
    assert not pace.rests(time.monotonic() + REST_SECONDS)


def test_a_quick_commit_between_slow_ones_begins_the_count_anew() -> None:
    pace, now = CommitPace(SLOW_SECONDS), time.monotonic()
    for _ in range(3 * SLOW_IN_A_ROW):
        for _ in range(SLOW_IN_A_ROW - 1):
            pace.note(now - 2 * SLOW_SECONDS)
        pace.note(time.monotonic())
    assert not pace.rests(now)
