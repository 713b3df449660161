"""Fires cases at targets, all at once, and keeps what came of it.

The servers' own logs say what was executed: each shot carries a marker of its own, so many
shots can be in the air together.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.bypass.shot import Aim, Case, Route, Shot, benign_shot, denied_shot
from tests.bypass.targets import PROCESSES, TARGETS, Target, opened
from tests.support.harness import Certificates, ServerHandle
from tests.support.timeouts import PATIENCE

type Kind = Literal["denied", "benign"]
KINDS: tuple[Kind, ...] = ("denied", "benign")
TRIES = 20
WORKERS = 32
SETTLE_LIMIT = PATIENCE
_MARKER = re.compile(r"il\.[a-z0-9-]+\.(?:denied|benign)\.[a-z0-9-]+\.[a-z]+", re.ASCII)


@dataclass(frozen=True)
class Proxy:
    """The port and the CA of a running Interlock."""

    port: int
    ca_file: Path | None


type Proxies = Callable[[Target, Route], Proxy]
"""Which proxy stands before a target on a route."""


@dataclass(frozen=True)
class Hit:
    """What came back for one shot, and how long it took."""

    answer: bytes
    seconds: float


@dataclass
class Report:
    """What came of a volley: answers by marker, and what the servers executed."""

    hits: dict[str, Hit] = field(default_factory=dict[str, Hit])
    executed: set[str] = field(default_factory=set[str])
    forbidden: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    """Every execution of something the policy denies: the process, and the line of its log."""


def marker(case: Case, kind: Kind, target: Target, route: Route) -> str:
    return f"il.{case.id}.{kind}.{target.name}.{route}".lower()


def is_forbidden(line: dict[str, Any]) -> bool:
    """Whether the tests' policy denies what this log line says was executed."""
    return line["tool"] == "danger" or (line["tool"] == "read_file" and "/etc/" in json.dumps(line["arguments"]))


class Range:
    """Running servers, and the means to fire at them."""

    def __init__(self, servers: dict[str, ServerHandle], certificates: Certificates) -> None:
        self.servers = servers
        self._certificates = certificates

    def volley(self, cases: Sequence[Case]) -> Report:
        """Fire every case straight at every target, and wait until it is over."""
        return self._fire(None, lambda target: cases)

    def volley_through(self, proxies: Proxies, cases: Sequence[Case], direct: Report) -> Report:
        """Fire the cases again, through `proxies`, wherever they are worth it."""
        return self._fire(proxies, lambda target: [case for case in cases if is_worth(case, target, direct)])

    def _fire(self, proxies: Proxies | None, choose: Callable[[Target], Sequence[Case]]) -> Report:
        report = Report()
        with contextlib.ExitStack() as stack:
            aims = [(target, stack.enter_context(opened(target, aim))) for target, aim in self._aims(proxies)]
            with ThreadPoolExecutor(WORKERS) as pool:
                pending = [job for target, aim in aims for job in _submit(pool, target, aim, choose(target))]
                for future in pending:
                    report.hits |= future.result()
            for target, aim in aims:
                self._settle(target, aim)
        self._read_logs(report)
        return report

    def _aims(self, proxies: Proxies | None) -> Iterator[tuple[Target, Aim]]:
        for target in TARGETS:
            port = self.servers[target.process].port
            ca_file = self._certificates.ca_file if target.tls else None
            direct = Aim("direct", port, port, modern=target.modern, tls=target.tls, ca_file=ca_file)
            if proxies is None:
                yield target, direct
                continue
            for route in target.routes:
                proxy = proxies(target, route)
                yield (
                    target,
                    Aim(route, port, proxy.port, modern=target.modern, tls=target.tls, ca_file=proxy.ca_file),
                )

    def _settle(self, target: Target, aim: Aim) -> None:
        """Send one ordinary call and wait until the server has executed it: what came before is then over."""
        mark = f"il.barrier.benign.{target.name}.{aim.route}"
        shot = Shot(aim, mark, "echo", {"text": mark})
        aim.send([shot.request()], limit=SETTLE_LIMIT, answers=1)
        deadline = time.monotonic() + SETTLE_LIMIT
        while time.monotonic() < deadline:
            if mark in self.servers[target.process].log.read_text():
                return
            time.sleep(0.05)
        raise AssertionError(f"{target.process} did not execute the closing call {mark}")

    def _read_logs(self, report: Report) -> None:
        for process, server in self.servers.items():
            for line in server.new_executions():
                report.executed |= set(_MARKER.findall(json.dumps(line)))
                if is_forbidden(line):
                    report.forbidden.append((process, line))


def is_worth(case: Case, target: Target, direct: Report) -> bool:
    """Whether to fire through the proxy: not at a server that takes the shape for nothing even without one.

    The lenient server takes all there is, and what must be answered in one way is sent to all.
    """
    if target.lenient or case.answer == "denial":
        return True
    return any(marker(case, kind, target, "direct") in direct.executed for kind in KINDS)


def _submit(
    pool: ThreadPoolExecutor, target: Target, aim: Aim, cases: Sequence[Case]
) -> Iterator[Future[dict[str, Hit]]]:
    for case in cases:
        if applies(case, aim.route, target):
            yield pool.submit(_fire_both, case, target, aim)


def _fire_both(case: Case, target: Target, aim: Aim) -> dict[str, Hit]:
    """Fire the denied shot, then (where the row says what is to come of it) the benign one.

    They may share an id, so never at once.
    """
    denied, benign = marker(case, "denied", target, aim.route), marker(case, "benign", target, aim.route)
    hits = {denied: _fire(case, denied_shot(case, aim, denied))}
    if case.benign != "either":
        hits[benign] = _fire(case, benign_shot(case, aim, benign))
    return hits


def applies(case: Case, route: Route, target: Target) -> bool:
    """Whether `case` means anything on this way to this target."""
    if route != "direct":
        return route in case.routes
    return any(straight in case.routes for straight in target.routes)


def _fire(case: Case, shot: Shot) -> Hit:
    # Rows whose ids are one number to the proxy (0 and -0) may meet in a session: the later one comes again.
    for _ in range(TRIES):
        started = time.monotonic()
        try:
            answer = case.fire(shot)
        except OSError as error:
            answer = f"{type(error).__name__}: {error}".encode()
        hit = Hit(answer, time.monotonic() - started)
        if b"(id_in_use)" not in answer:
            break
    return hit


@contextlib.contextmanager
def running_range(directory: Path, certificates: Certificates) -> Iterator[Range]:
    """Start every server there is."""
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(start(directory / name, certificates)) for name, start in PROCESSES.items()
        }
        yield Range(servers, certificates)
