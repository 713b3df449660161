"""A replica at rest holds two connections to its Postgres, however many workers it has: it listens, and it asks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.faults.load import wait_until
from tests.support.postgres import Postgres
from tests.support.replicas import start_replicas

POLICY = """
version: 1
rules:
  - {id: pay, action: two_phase, tools: [pay], approval: auto}
limits:
  - {id: few, tools: [pay], count: 5, within: 1h, per: all}
"""
LOOKS = 40
PAUSE = 0.2
"""Between two looks, each of which is a process and a connection of its own."""
HELD = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'interlock'"
YOUNG = " AND backend_start > now() - interval '4 s'"


def held(postgres: Postgres, url: str, more: str = "") -> int:
    time.sleep(PAUSE)
    return int(postgres.psql(HELD + more, url))


def test_a_replica_at_rest_holds_two_connections(tmp_path: Path, postgres: Postgres) -> None:
    with postgres.lend() as url, start_replicas(tmp_path, url, 2, POLICY, ["--workers", "2"]) as replicas:
        wait_until(lambda: held(postgres, url) <= 2 * len(replicas) and not held(postgres, url, YOUNG))
        # Through every round of what is asked again and again; the slowest come every ten seconds. A worker that waits
        # too long for the one that asks for all, as on a busy machine, asks once for itself; then it hangs up again.
        seen, until = [], time.monotonic() + 12
        while time.monotonic() < until or len(seen) < LOOKS:
            seen.append(held(postgres, url))
        assert min(seen) >= 1
        wait_until(lambda: held(postgres, url) <= 2 * len(replicas) and not held(postgres, url, YOUNG))
        # Whoever follows for the others hangs: they ask for themselves, on connections of their own.
        lead = replicas[0].worker_pids[0]
        os.kill(lead, signal.SIGSTOP)
        try:
            wait_until(lambda: held(postgres, url, YOUNG))
        finally:
            os.kill(lead, signal.SIGCONT)
