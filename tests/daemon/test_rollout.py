"""Policy roll-out on the wire: replicas on one Postgres that follow signed steps, and nothing else.

The proxies log in to the database with a role that cannot publish; the operator, on a folder of its own, with one that
can, and with the private key, which no proxy has.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proxy.core.rollout import SignedStep
from proxy.identity.token_file import AgentTokens, OperatorTokens
from proxy.rollout.step import sign
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.daemon.lines_to import Line, reason_of
from tests.faults.load import wait_until
from tests.rollout.fixtures import OTHER, OTHER_KEY, bundle, step
from tests.support.harness import Interlock, ServerHandle, interlock_cli, start_interlock, start_python_server
from tests.support.postgres import Postgres
from tests.support.trail_reader import read_trail

OWN = "version: 1\ndefault: allow\nrules: [{id: own, action: deny, tools: [of_its_own_file]}]\n"
ALLOW = "version: 1\ndefault: allow\n"
DENY = f"{ALLOW}rules: [{{id: no-echo, action: deny, tools: [echo]}}]\n"


class Operator:
    """Whoever publishes, on a machine of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        OperatorTokens(folder).ensure()
        self.keys = folder / "policy-public.pem"
        assert self.run("key", "--public", str(self.keys)).returncode == 0

    def run(self, *arguments: str) -> Any:
        more = [] if arguments[0] == "key" else ["--database-url", self.url]
        return interlock_cli("policy", *arguments, *more, "--state-dir", str(self.folder))

    def push(self, text: str, *more: str) -> dict[str, Any]:
        """Push a policy, and wait until the replicas say that they follow."""
        file = self.folder / "policy.yaml"
        file.write_text(text)
        done = self.run("push", str(file), "--force", "--json", "--wait", "60", *more)
        assert done.returncode == 0, done.stdout + done.stderr
        made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return made

    def store(self, work: Callable[[Rollout], Any]) -> Any:
        async def run() -> Any:
            database = open_database(self.url, self.folder)
            try:
                return await work(Rollout(database))
            finally:
                await database.close()

        return asyncio.run(run())


class Fleet:
    def __init__(self, operator: Operator, replicas: list[Interlock], server: ServerHandle, owner: str) -> None:
        self.operator, self.replicas, self.server = operator, replicas, server
        self.name = owner.split("@/")[1].split("?", maxsplit=1)[0]
        self._owner = owner

    def recorded(self) -> list[dict[str, Any]]:
        """Return the events of all replicas, which their own role may not read."""
        return read_trail(self.replicas[0].state_dir, self._owner)

    def call(self, replica: int, tool: str = "echo", token: str | None = None) -> tuple[str | None, str]:
        """Call a tool at a replica; return the reason of a refusal, and the policy that decided."""
        line = _Any(self.replicas[replica], f"{self.server.url}/mcp", token)
        try:
            return reason_of(answer := line.call(1, tool, text="x")), json.dumps(answer)
        finally:
            line.close()

    def denied(self, tool: str = "echo") -> list[bool]:
        return [self.call(at, tool)[0] is not None for at in range(len(self.replicas))]

    def ready(self, replica: int) -> tuple[int, dict[str, str]]:
        try:
            with urllib.request.urlopen(f"{self.replicas[replica].health_url}/readyz", timeout=60) as answer:
                return answer.status, {}
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["not_ready"]


class _Any(Line):
    """A line to whichever worker the kernel chooses, with an agent's token."""

    def __init__(self, interlock: Interlock, url: str, token: str | None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", interlock.port, timeout=60)
        self._url = url
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if token is not None:
            self.headers["Proxy-Authorization"] = f"Basic {base64.b64encode(f'canary-bird:{token}'.encode()).decode()}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("quick", tmp_path_factory.mktemp("quick")) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, server: ServerHandle) -> Iterator[Fleet]:
    for login, role in (("publisher", "interlock_publisher, interlock_reader"), ("proxy", "interlock_writer")):
        if not postgres.psql(f"SELECT 1 FROM pg_roles WHERE rolname = '{login}'"):
            postgres.psql(f"CREATE ROLE {login} LOGIN IN ROLE {role}")
    with postgres.lend() as url, contextlib.ExitStack() as stack:
        name = url.split("@/")[1].split("?")[0]
        operator = Operator(tmp_path_factory.mktemp("operator"), postgres.url(name, "publisher"))
        started = [
            stack.enter_context(
                start(tmp_path_factory.mktemp(f"replica{at}"), operator, postgres.url(name, "proxy"), at)
            )
            for at in (1, 2)
        ]
        # A replica is counted from its first report on, which comes a second after its start.
        wait_until(lambda: len(operator.store(lambda store: store.replicas(60.0))) == 2)
        yield Fleet(operator, started, server, url)


def start(folder: Path, operator: Operator, url: str, workers: int) -> contextlib.AbstractContextManager[Interlock]:
    settings = {
        "policy_source": "pushed",
        "policy_keys": str(operator.keys),
        "canary_calls": 10,
        "workers": workers,
        "database_url": url,
    }
    return start_interlock(folder, policy=OWN, settings=settings, flags=["--database-url", url])


def test_a_pushed_policy_is_in_force_at_every_replica_and_named_in_every_event(fleet: Fleet) -> None:
    assert fleet.denied("of_its_own_file") == [True, True]  # until something is pushed
    made = fleet.operator.push(DENY, "--note", "no echo")
    assert [one["step"] for one in made["replicas"]] == [made["step"]] * 2
    # A worker that did not report loads it at the same time.
    wait_until(lambda: fleet.denied() == [True, True])
    assert fleet.denied("of_its_own_file") == [False, False]
    wait_until(
        lambda: [e["policy_version"] for e in fleet.recorded() if e["kind"] == "decided"].count(made["stable"]) > 3
    )

    def taken() -> int:
        steps = [event["detail"] for event in fleet.recorded() if event["kind"] == "policy_step"]
        return [(one["operator"], one["step"]) for one in steps].count(("operator", made["step"]))

    wait_until(lambda: taken() == len(fleet.replicas))  # once for each, whatever workers it has
    for replica in fleet.replicas:
        assert json.loads(replica.cli("status", "--json").stdout)["policy_version"] == made["stable"]
    history = fleet.operator.run("history")
    assert history.returncode == 0, history.stdout
    assert "no echo" in history.stdout


def test_concurrent_pushes_have_one_order_everywhere(fleet: Fleet) -> None:
    file = fleet.operator.folder / "many.yaml"
    file.write_text(ALLOW)
    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(lambda _: fleet.operator.run("push", str(file), "--force", "--wait", "0"), range(3)))
    # Each either has a number of its own or is told that somebody else was first.
    assert all("meanwhile" in end.stderr for end in ends if end.returncode == 1), [end.stderr for end in ends]
    assert any(end.returncode in (0, 3) for end in ends)  # 3: a replica had not said yet that it follows
    made = fleet.operator.push(DENY)
    assert {one["version"] for one in made["replicas"]} == {made["stable"]}


@pytest.mark.parametrize("kind", ["unsigned", "another's", "older again"])
def test_a_step_that_nobody_trusted_signed_is_refused_loudly(kind: str, fleet: Fleet, postgres: Postgres) -> None:
    """Whoever owns the database can store it; no replica takes it."""
    made = fleet.operator.push(DENY)
    lax, number = bundle(default="allow"), made["step"] + 1
    if kind == "older again":
        old = fleet.operator.store(lambda store: store.step(made["step"]))
        bad = SignedStep(number, old.body, old.key_id, old.signature)
    else:
        bad = sign(step(number, lax), OTHER.key_id, OTHER_KEY)
        bad = bad if kind == "another's" else SignedStep(number, bad.body, OTHER.key_id, "")
    fleet.operator.store(lambda store: store.add(bad, {lax.digest: lax.text}))
    for at in (0, 1):
        wait_until(lambda at=at: fleet.ready(at)[0] == 503)
        assert f"policy step {number}" in fleet.ready(at)[1]["policy"]
    assert fleet.denied() == [True, True]
    assert fleet.replicas[0].cli("status").returncode == 1
    history = fleet.operator.run("history")
    assert (history.returncode, "NOT VALID" in history.stdout + history.stderr) == (1, True)
    fleet.operator.push(ALLOW)
    for at in (0, 1):
        wait_until(lambda at=at: fleet.ready(at)[0] == 200)
    wait_until(lambda: fleet.denied() == [False, False])


def test_a_canary_by_agent_decides_its_calls_alone(fleet: Fleet) -> None:
    fleet.operator.push(ALLOW)
    tokens = [AgentTokens(replica.state_dir).add("canary-bird") for replica in fleet.replicas]
    try:
        fleet.operator.push(DENY, "--canary", "agents=canary-*")
        for at, token in enumerate(tokens):
            wait_until(lambda at=at, token=token: fleet.call(at, token=token)[0] == "policy_denied")
            assert fleet.call(at)[0] is None
        assert fleet.operator.run("promote", "--wait", "60").returncode == 0
        wait_until(lambda: fleet.denied() == [True, True])
    finally:
        for replica in fleet.replicas:
            AgentTokens(replica.state_dir).revoke("canary-bird")


def test_a_canary_whose_denials_jump_is_ended_everywhere(fleet: Fleet) -> None:
    fleet.operator.push(ALLOW)
    wait_until(lambda: fleet.denied() == [False, False])
    made = fleet.operator.push(DENY, "--canary", "50%")
    (canary,) = made["canary_replicas"]
    wait_until(lambda: sorted(fleet.denied()) == [False, True])
    calls = 0

    def over() -> bool:
        nonlocal calls
        calls += 1
        return fleet.denied() == [False, False]

    wait_until(over)
    assert calls >= 9  # not before each side has decided ten; the first pair was counted before
    reason = fleet.operator.store(lambda store: store.returned(made["step"]))
    assert reason.startswith("denials jumped: 100.0% of the canary's")
    refused = fleet.operator.run("promote")
    assert (refused.returncode, "was ended" in refused.stderr) == (1, True)
    wait_until(
        lambda: [e["detail"]["step"] for e in fleet.recorded() if e["kind"] == "policy_returned"] == [made["step"]]
    )
    assert canary in fleet.operator.run("history").stdout


def test_without_its_database_the_policy_stays_also_over_a_restart(
    fleet: Fleet, postgres: Postgres, tmp_path: Path
) -> None:
    made = fleet.operator.push(DENY)
    wait_until(lambda: fleet.denied() == [True, True])
    with start(tmp_path / "third", fleet.operator, postgres.url(fleet.name, "proxy"), 1):
        pass
    postgres.halt()
    try:
        assert fleet.denied() == [True, True]
        with start(tmp_path / "third", fleet.operator, postgres.url(fleet.name, "proxy"), 1) as third:
            assert json.loads(third.cli("status", "--json").stdout)["policy_version"] == made["stable"]
    finally:
        postgres.start()
    fleet.operator.push(ALLOW)
    wait_until(lambda: fleet.denied() == [False, False])
