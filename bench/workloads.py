"""The workloads that are load on HTTP: who takes part in each, by which traffic, and the rounds they take turns in."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.clients import LoadError, Sample, measure
from bench.contenders import (
    DIRECT,
    EMPTY,
    INTERLOCK,
    MITMDUMP,
    NAIVE,
    NGINX,
    Contender,
    Interlock,
    Running,
    World,
    all_started,
    interlock_on_postgres,
    knows,
)
from bench.load import Spec
from bench.processes import StartError

AUTHORITY = "127.0.0.1:{}"


@dataclass(frozen=True)
class Workload:
    """One way of making calls, and who takes part."""

    id: str
    title: str
    contenders: Sequence[Contender]
    kind: str = "plain"
    path: str = "/small.json"
    connections: int = 32
    fresh: bool = False
    seconds: float = 2.0
    rounds: int = 3
    in_quick: bool = False
    of_contender: dict[str, int] = dataclasses.field(default_factory=dict)
    """Connections of those that get another number of them."""
    without: Callable[[], str | None] = lambda: None
    """Says why it cannot be measured, where it cannot."""

    def spec(self, running: Running, world: World, contender: str, seconds: float) -> Spec:
        """Say what the client does to a contender."""
        ports = {"plain": world.servers.plain, "tls": world.servers.tls, "http2": world.servers.http2}
        server = ports[self.kind]
        if server is None:
            raise StartError("the upstream server speaks no HTTP/2 without nginx")
        return Spec(
            port=running.port or server,
            authority=AUTHORITY.format(server),
            path=self.path,
            connections=self.of_contender.get(contender, self.connections),
            seconds=seconds,
            tunnel=running.tunnel,
            tls=self.kind != "plain",
            http2=self.kind == "http2",
            fresh=self.fresh,
        )


@dataclass(frozen=True)
class Figures:
    """What a contender's turns gave: medians over the rounds."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None
    busiest_us: float | None
    connections: int
    client: str
    rounds: list[Sample]


def middle(values: Sequence[float | None]) -> float | None:
    """Return the median of what is there."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def summarise(samples: list[Sample], connections: int) -> Figures:
    """Return the medians."""
    return Figures(
        rate=statistics.median(sample.rate for sample in samples),
        p50_ms=statistics.median(sample.p50_ms for sample in samples),
        p99_ms=statistics.median(sample.p99_ms for sample in samples),
        cpu_us=middle([sample.cpu_us for sample in samples]),
        busiest_us=middle([sample.busiest_us for sample in samples]),
        connections=connections,
        client=samples[0].client,
        rounds=samples,
    )


def as_json(figures: Figures) -> dict[str, Any]:
    """Return the form of the results file."""
    rounds = [{**dataclasses.asdict(sample), "rate": sample.rate} for sample in figures.rounds]
    return {**dataclasses.asdict(figures), "rounds": rounds}


def turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Return whose turn it is: everybody once a round, each round beginning with another."""
    for number in range(rounds if names else 0):
        shift = number % len(names)
        yield from (*names[shift:], *names[:shift])


def run(
    workload: Workload, world: World, say: Callable[[str], None], seconds: float, rounds: int
) -> dict[str, Figures]:
    """Measure a workload, the contenders taking turns so that a busy moment of the machine is everybody's."""
    if reason := workload.without():
        world.leave_out(workload.id, reason)
        return {}
    mode = "plain" if workload.kind == "plain" else "tls"
    with all_started(world, workload.contenders, mode, workload.id) as running:
        samples: dict[str, list[Sample]] = {name: [] for name in running}
        for name in turns(list(running), rounds):
            say(f"{workload.id}: {name}")
            try:
                spec = workload.spec(running[name], world, name, seconds)
                samples[name].append(measure(spec, running[name].pid, world.servers))
            except (LoadError, StartError) as error:
                world.leave_out(f"{workload.id}: {name}", str(error))
    return {
        name: summarise(taken, workload.of_contender.get(name, workload.connections))
        for name, taken in samples.items()
        if taken
    }


def _variant(name: str, what: str, **changes: object) -> Contender:
    return Contender(name, what, Interlock(name=f"interlock-{name.replace(' ', '-')}", **changes))  # type: ignore[arg-type]


def _workers(count: int) -> Contender:
    noun = "worker" if count == 1 else "workers"
    return _variant(f"{count} {noun}", f"Interlock, {count} {noun}", flags=("--workers", str(count)))


def _without_workers() -> str | None:
    return None if knows("--workers") else "this version of `interlock up` has no --workers"


EVERYBODY = (DIRECT, NGINX, MITMDUMP, NAIVE, EMPTY, INTERLOCK)
INTERCEPTORS = (DIRECT, MITMDUMP, NAIVE, EMPTY, INTERLOCK)
FEW = (DIRECT, NGINX, MITMDUMP, INTERLOCK)

WORKLOADS = (
    Workload(
        "tls-32",
        "CONNECT and TLS on both sides, 32 connections, 400 B results",
        INTERCEPTORS,
        kind="tls",
        seconds=2.5,
        rounds=4,
        in_quick=True,
    ),
    Workload(
        "tls-sse-32",
        "CONNECT and TLS on both sides, 32 connections, 400 B results as SSE",
        (MITMDUMP, INTERLOCK),
        kind="tls",
        path="/small.sse",
        in_quick=True,
    ),
    Workload(
        "tls-large-32",
        "CONNECT and TLS on both sides, 32 connections, 20 KB results",
        (MITMDUMP, INTERLOCK),
        kind="tls",
        path="/large.json",
        in_quick=True,
    ),
    Workload(
        "new-connection",
        "a new CONNECT and TLS connection for each call",
        (DIRECT, MITMDUMP, EMPTY, INTERLOCK),
        kind="tls",
        connections=4,
        fresh=True,
        in_quick=True,
    ),
    Workload("plain-1", "reverse proxy, plain, 1 connection", FEW, connections=1),
    Workload("plain-32", "reverse proxy, plain, 32 connections", EVERYBODY),
    Workload("plain-256", "reverse proxy, plain, 256 connections", FEW, connections=256, seconds=2.6),
    Workload("large-32", "reverse proxy, plain, 20 KB results", FEW, path="/large.json"),
    Workload("sse-32", "reverse proxy, plain, 400 B results as SSE", FEW, path="/small.sse"),
    Workload(
        "tls-1", "CONNECT and TLS on both sides, 1 connection", (DIRECT, MITMDUMP, INTERLOCK), kind="tls", connections=1
    ),
    Workload(
        "http2-32",
        "HTTP/2 on both sides, 4 connections of 8 calls at once",
        (DIRECT, MITMDUMP, INTERLOCK),
        kind="http2",
    ),
    Workload(
        "rules",
        "policies of 1, 100 and 1000 rules",
        (
            _variant("1 rule", "Interlock, 1 rule", rules=1),
            _variant("100 rules", "Interlock, 100 rules"),
            _variant("1000 rules", "Interlock, 1000 rules", rules=1000),
        ),
    ),
    Workload(
        "redaction",
        "redaction off and on, 20 KB results with a secret",
        (
            _variant("off", "Interlock, no redaction", redact=False),
            _variant("on", "Interlock, redaction"),
        ),
        path="/secret.json",
        in_quick=True,
    ),
    Workload(
        "audit",
        "audit in SQLite and in Postgres",
        (
            _variant("sqlite", "Interlock, events in SQLite"),
            Contender("postgres", "Interlock, events in Postgres", interlock_on_postgres),
        ),
    ),
    Workload(
        "gate-parts",
        "what the gate adds, CONNECT and TLS on both sides, 32 connections",
        (
            EMPTY,
            _variant("recording", "Interlock's embedding, two bare events on disk", module="bench.recording_gate"),
            _variant("no redaction", "Interlock, no redaction", redact=False),
            INTERLOCK,
        ),
        kind="tls",
    ),
    Workload(
        "strict",
        "the strict profile, CONNECT and TLS on both sides, 32 connections",
        (MITMDUMP, _variant("strict", "Interlock, strict profile", strict=True)),
        kind="tls",
        in_quick=True,
    ),
    Workload(
        "workers",
        "1 worker with 128 connections, 2 with 256",
        (_workers(1), _workers(2)),
        connections=256,
        of_contender={"1 worker": 128},
        seconds=4.0,
        in_quick=True,
        without=_without_workers,
    ),
)
