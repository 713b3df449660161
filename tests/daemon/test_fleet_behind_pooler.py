"""A fleet whose proxies reach Postgres by PgBouncer alone (transaction pooling), which may hang or lead elsewhere."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.daemon.test_fleet import BOB, STABLE, ask, call, done, reason, replica
from tests.faults.load import wait_until
from tests.support.harness import Interlock, ServerHandle, start_python_server
from tests.support.postgres import Postgres
from tests.support.postgres_lines import pgbouncer
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE

pytestmark = needs("pgbouncer")


@dataclass
class Pooled:
    url: str
    database: str
    bouncer: int
    state: Path
    replicas: list[Interlock]
    bank: ServerHandle


@pytest.fixture(scope="module")
def pooled(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooled]:
    folder, owner, pids = tmp_path_factory.mktemp("pooled"), postgres.new_database(), list[int]()
    with ExitStack() as closing:
        url = closing.enter_context(pgbouncer(owner, pids=pids))
        done(folder / "a" / "state", url, "fleet", "init")
        done(folder / "b" / "state", url, "join")
        bank = closing.enter_context(start_python_server("funds", folder / "bank", flags=["--json"]))
        replicas = [closing.enter_context(replica(folder / name, url)) for name in "ab"]
        yield Pooled(url, urlsplit(owner).path.lstrip("/"), pids[0], folder / "a" / "state", replicas, bank)


def not_ready(through: Interlock) -> dict[str, str]:
    try:
        with urllib.request.urlopen(f"{through.health_url}/readyz", timeout=PATIENCE) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as error:
        said = json.load(error)
    found: dict[str, str] = said["not_ready"]
    return found


def propose(through: Interlock, bank: ServerHandle) -> dict[str, Any]:
    result: dict[str, Any] = call(through, bank, "transfer_funds_propose", {**BOB, "_interlock": STABLE})
    return result


def check_refused_alone(pooled: Pooled, why: str) -> None:
    """Check that two-phase calls are refused, and told of, while others go on."""
    for each in pooled.replicas:
        wait_until(lambda each=each: why in not_ready(each).get("two_phase", ""))
        assert reason(propose(each, pooled.bank)) == "store_unavailable"
        assert not call(each, pooled.bank, "balance", {"account": "bob"}).get("isError")


def test_a_revocation_arrives_and_a_token_commits_elsewhere_once(pooled: Pooled) -> None:
    first, second = pooled.replicas
    token = json.loads(done(pooled.state, pooled.url, "agents", "add", "bot", "--json"))["token"]

    def knows() -> bool:
        try:
            return "result" in ask(second, pooled.bank, "tools/list", {}, token)
        except httpx2.HTTPError:
            return False

    wait_until(knows)
    done(pooled.state, pooled.url, "agents", "revoke", "bot")
    wait_until(lambda: not knows())
    given = propose(first, pooled.bank)["structuredContent"]
    words = {**BOB, "proposal_id": given["proposal_id"], "commit_token": given["commit_token"]}
    assert not call(second, pooled.bank, "transfer_funds_commit", words).get("isError")
    for each in pooled.replicas:
        assert reason(call(each, pooled.bank, "transfer_funds_commit", words)) == "nonce_replay"


def test_a_pooler_that_hangs_stops_two_phase_calls_and_no_others(pooled: Pooled) -> None:
    propose(pooled.replicas[0], pooled.bank)
    os.kill(pooled.bouncer, signal.SIGSTOP)
    try:
        check_refused_alone(pooled, "the store cannot be used")
    finally:
        os.kill(pooled.bouncer, signal.SIGCONT)
    wait_until(lambda: not any(map(not_ready, pooled.replicas)))
    assert "structuredContent" in propose(pooled.replicas[1], pooled.bank)


def test_a_failover_to_a_standby_is_told_though_it_answers(pooled: Pooled, postgres: Postgres) -> None:
    hang_up = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{pooled.database}'"
    name = f'"{pooled.database}"'
    postgres.psql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        postgres.psql(hang_up)
        check_refused_alone(pooled, "takes no writes")
    finally:
        postgres.psql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        postgres.psql(hang_up)
    wait_until(lambda: not any(map(not_ready, pooled.replicas)))
