"""A fleet behind a balancer while its parts are killed, restarted and given new policies; and what it lost."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.audit.local_log_files import log_states
from proxy.core.secret_variables import KEK_ENV
from proxy.policy.reloader import LivePolicy
from proxy.redact import builtin
from tests.faults.load import Load, Seen, marks, wait_until
from tests.support.balancer import Balancer
from tests.support.fleet_fixture import ENVIRON
from tests.support.harness import Interlock, ServerHandle, free_port, interlock_cli, start_interlock
from tests.support.take_over import ended, take_over
from tests.support.trail_reader import read_trail

POLICY = """\
version: 1
default: allow
rules:
  - {{id: revision-{}, description: The policy's number, action: deny, tools: [never]}}
"""
STALE_SECONDS = 2.0
KILL_SECONDS = 1.0  # connections to a process that was killed are cut at once
DRAIN_LIMIT = 120.0


@dataclass
class FleetCounts:
    """What became of the calls of one run."""

    seconds: float
    acknowledged: int
    executed: int
    recorded: int
    lost: int
    twice: int
    stale: int
    dropped: int
    cut_by_kills: int
    refused: Counter[str]
    unconnected: int
    workers_killed: int
    replicas_killed: int
    restarts: int
    policies: int
    slowest_policy: float
    unexplained: list[str]
    descriptors: list[int]
    chain_problems: int

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled, decided by an old policy, or dropped."""
        wrong = self.lost, self.twice, self.stale, self.dropped, self.unconnected, self.chain_problems
        return not any(wrong) and not self.refused


@dataclass
class Replica:
    """One state folder, and the process that has it now."""

    folder: Path
    flags: Sequence[str]
    port: int
    running: Interlock
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class Fleet:
    """Three replicas, or so, on one database."""

    def __init__(self, folder: Path, database_url: str, server: ServerHandle, replicas: int, workers: int) -> None:
        self.folder, self.url, self.server = folder, database_url, server
        self.random = random.Random(7)
        self.policies: list[tuple[float, str]] = []
        self.kills: list[tuple[int, float]] = []
        self.descriptors: list[int] = []
        self.restarts: list[tuple[int, float]] = []
        self.done: Counter[str] = Counter()
        self.revision = 0
        names = [f"replica-{number}" for number in range(1, replicas + 1)]
        self._make([folder / name / "state" for name in names])
        flags = ["--database-url", database_url, "--workers", str(workers), "--drain-timeout", "5"]
        flags += ["--key-encryption-key", f"env:{KEK_ENV}", "--policy-source", "pushed"]
        self.policies.append((time.time(), self._version(folder / "first.yaml")))
        self.replicas = [self._start(folder / name, [*flags, "--listen", f"127.0.0.1:{free_port()}"]) for name in names]

    def _make(self, states: Sequence[Path]) -> None:
        """Make a fleet of the first folder, let the others join, and make the key that signs policies."""
        for state_dir, words in zip(states, [("fleet", "init"), *[("join",)] * (len(states) - 1)], strict=True):
            self._run(state_dir, *words, "--key-encryption-key", f"env:{KEK_ENV}")
        self._run(states[0], "policy", "key")

    def _run(self, state_dir: Path, *words: str, codes: Sequence[int] = (0,)) -> str:
        done = interlock_cli(*words, "--state-dir", str(state_dir), "--database-url", self.url, env=ENVIRON)
        assert done.returncode in codes, done.stderr
        return done.stdout

    def _start(self, folder: Path, flags: Sequence[str]) -> Replica:
        stack = contextlib.ExitStack()
        running = stack.enter_context(
            start_interlock(folder, policy=POLICY.format(self.revision), flags=flags, env=ENVIRON)
        )
        return Replica(folder, flags, running.port, running, stack)

    def _version(self, file: Path) -> str:
        file.write_text(POLICY.format(self.revision))
        return LivePolicy(file, book=builtin()).current().version

    def acts(self) -> list[Callable[[], None]]:
        return [self.change_policy, self.restart, self.kill_worker, self.restart, self.change_policy, self.kill_replica]

    def change_policy(self) -> None:
        """Push the next policy. Its time is that of its signature, a little before anybody could know of it."""
        self.revision += 1
        file = self.folder / "next.yaml"
        file.write_text(POLICY.format(self.revision))
        words = ("policy", "push", str(file), "--force", "--wait", "0", "--json")
        # A replica that has not followed yet is 3.
        step = json.loads(self._run(self.folder / "replica-1" / "state", *words, codes=(0, 3)).splitlines()[0])
        self.policies.append((step["time"], step["stable"]))
        self.done["policies"] += 1

    def restart(self) -> None:
        """Let a new process take over from one replica's."""
        replica = self.random.choice(self.replicas)
        self.restarts.append((replica.port, time.monotonic()))
        old, replica.running = replica.running, take_over(replica.running)
        assert ended(old) == 0, old.errors()[-5000:]
        self.descriptors.append(len(list(Path(f"/proc/{replica.running.run['pid']}/fd").iterdir())))
        self.done["restarts"] += 1

    def kill_worker(self) -> None:
        replica = self.random.choice(self.replicas)
        pid = self.random.choice(replica.running.worker_pids)
        self.kills.append((replica.port, time.monotonic()))
        os.kill(pid, signal.SIGKILL)
        self.done["workers"] += 1

    def kill_replica(self) -> None:
        """Kill one replica as a whole, and start it again on its folder."""
        number = self.random.randrange(len(self.replicas))
        replica = self.replicas[number]
        self.kills.append((replica.port, time.monotonic()))
        replica.running.process.send_signal(signal.SIGKILL)
        replica.running.process.wait(30)
        replica.running.stopped = True
        self.done["replicas"] += 1
        replica.stack.close()
        self.replicas[number] = self._start(replica.folder, replica.flags)

    def stop(self) -> None:
        """Let everything move to the store, and end all."""
        for replica in self.replicas:
            wait_until(lambda replica=replica: not backlog(replica.folder / "state"), DRAIN_LIMIT)
            replica.running.stop()
            replica.stack.close()


def backlog(state_dir: Path) -> int:
    return sum(state.backlog for state in log_states(state_dir).values())


def run(
    folder: Path,
    database_url: str,
    server: ServerHandle,
    seconds: float,
    *,
    replicas: int = 3,
    workers: int = 2,
    rounds: int | None = None,
) -> FleetCounts:
    """Run a fleet for so long, or for so many acts, and count."""
    seen, began = Seen(), time.monotonic()
    fleet = Fleet(folder, database_url, server, replicas, workers)
    with (
        Balancer([replica.port for replica in fleet.replicas]) as balancer,
        Load(balancer.port, server.port, marks(), seen),
    ):
        for number, act in enumerate(_forever(fleet.acts())):
            if number == rounds or (rounds is None and time.monotonic() - began > seconds):
                break
            before = len(seen.acknowledged)
            act()
            wait_until(lambda before=before: len(seen.acknowledged) > before + 50, DRAIN_LIMIT)
    fleet.stop()
    return count(fleet, balancer, seen, time.monotonic() - began)


def _forever(acts: list[Callable[[], None]]) -> Iterator[Callable[[], None]]:
    while True:
        yield from acts


def count(fleet: Fleet, balancer: Balancer, seen: Seen, seconds: float) -> FleetCounts:
    """Compare what clients, the server and the trail say."""
    events = read_trail(fleet.replicas[0].folder / "state", fleet.url)
    decided = [e for e in events if e["kind"] == "decided" and "mark" in (e.get("arguments") or {})]
    recorded = Counter(event["arguments"]["mark"] for event in decided if event["decision"] == "allow")
    executed = Counter(each["arguments"]["mark"] for each in fleet.server.executions())
    ages = [age for event in decided if (age := policy_age(event, fleet.policies)) is not None]
    explained = [cut for cut in balancer.cuts if any(_explains(kill, cut) for kill in fleet.kills)]
    return FleetCounts(
        seconds=seconds,
        acknowledged=len(seen.acknowledged),
        executed=len(executed),
        recorded=len(recorded),
        lost=len((seen.acknowledged | set(executed)) - set(recorded)),
        twice=sum(n - 1 for n in executed.values()) + sum(n - 1 for n in recorded.values()),
        stale=sum(age > STALE_SECONDS for age in ages),
        dropped=max(len(balancer.cuts), seen.unanswered) - len(explained),
        cut_by_kills=len(explained),
        refused=Counter(dict.fromkeys(seen.reasons, seen.refused)),
        unconnected=seen.unconnected,
        workers_killed=fleet.done["workers"],
        replicas_killed=fleet.done["replicas"],
        restarts=fleet.done["restarts"],
        policies=fleet.done["policies"],
        slowest_policy=max(ages, default=0.0),
        unexplained=[_told(fleet, cut) for cut in balancer.cuts if cut not in explained],
        descriptors=fleet.descriptors,
        chain_problems=_chain_problems(fleet),
    )


def policy_age(event: dict[str, Any], policies: Sequence[tuple[float, str]]) -> float | None:
    """Return for how long the policy that decided had been replaced; None where it was in force."""
    place = bisect.bisect_right([since for since, _ in policies], event["time"])
    for index in range(place - 1, -1, -1):
        if policies[index][1] == event["policy_version"]:
            return None if index + 1 >= place else event["time"] - policies[index + 1][0]
    return None  # the newest, a moment before it was noted here


def _told(fleet: Fleet, cut: tuple[int, float]) -> str:
    """Return how long before a cut its replica was killed and restarted last."""
    ages = {
        name: [f"{cut[1] - at:.2f}" for port, at in acts if port == cut[0] and at <= cut[1]][-1:]
        for name, acts in (("killed", fleet.kills), ("restarted", fleet.restarts))
    }
    return f"{ages} s before"


def _explains(kill: tuple[int, float], cut: tuple[int, float]) -> bool:
    return kill[0] == cut[0] and 0 <= cut[1] - kill[1] <= KILL_SECONDS


def _chain_problems(fleet: Fleet) -> int:
    """Return how many breaks of chains verification finds, of all writers."""
    flags = ["--state-dir", str(fleet.replicas[0].folder / "state"), "--database-url", fleet.url]
    done = interlock_cli("audit", "verify", "--json", *flags)
    assert done.stdout, done.stderr
    return len(json.loads(done.stdout.splitlines()[-1])["problems"])
