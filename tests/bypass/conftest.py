"""One volley straight at the servers, and one through the proxy; every test reads their reports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.bypass.campaign import Proxy, Range, Report, running_range
from tests.bypass.cases import CASES
from tests.bypass.shot import Route
from tests.bypass.targets import TARGETS, Target
from tests.support.harness import Certificates, Interlock, start_interlock

SETTINGS = {"workers": int(os.environ.get("TEST_WORKERS", "2"))}
"""Two workers: the shots at one server, and the messages of one session, fall to either of them."""


@pytest.fixture(scope="session")
def shooting_range(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Range]:
    with running_range(tmp_path_factory.mktemp("range"), certificates) as running:
        yield running


@pytest.fixture(scope="session")
def direct(shooting_range: Range) -> Report:
    """What the servers do with every case when nothing stands before them."""
    return shooting_range.volley(CASES)


@dataclass(frozen=True)
class Interlocks:
    """One Interlock in regular mode, and one in reverse mode before each server that has a route for it."""

    regular: Interlock
    reverse: dict[str, Interlock]

    def before(self, target: Target, route: Route) -> Proxy:
        running = self.regular if route in ("regular", "connect") else self.reverse[target.process]
        return Proxy(running.port, running.ca_file)


@pytest.fixture(scope="session")
def interlocks(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, shooting_range: Range
) -> Iterator[Interlocks]:
    directory = tmp_path_factory.mktemp("interlock")
    processes = {target.process for target in TARGETS if not {"reverse", "reversetls"}.isdisjoint(target.routes)}
    with contextlib.ExitStack() as stack:

        def start(name: str, mode: str) -> Interlock:
            folder = directory / name
            return stack.enter_context(
                start_interlock(folder, mode, settings=SETTINGS, upstream_ca=certificates.ca_file)
            )

        regular = start("regular", "regular")
        reverse = {name: start(name, f"reverse:{shooting_range.servers[name].url}") for name in sorted(processes)}
        yield Interlocks(regular, reverse)


@pytest.fixture(scope="session")
def proxied(shooting_range: Range, direct: Report, interlocks: Interlocks) -> Report:
    """What gets through Interlock; fired after the direct volley, so the two never mix."""
    return shooting_range.volley_through(interlocks.before, CASES, direct)
