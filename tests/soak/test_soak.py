"""A short version of `make soak`: calls leave nothing behind, and connections that hold on take little and end."""

from __future__ import annotations

import contextlib
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from tests.faults.load import wait_until
from tests.soak.scenes import KB, SLOW_HEAD, Soak, answered, crowd, memory, soak
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.timeouts import PATIENCE

MIB = 1 << 20
CROWD = 150


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("quick", tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    settings = {"header_timeout": 2}
    policy = "version: 1\ndefault: allow\n"
    with start_interlock(tmp_path_factory.mktemp("proxy"), policy=policy, settings=settings) as running:
        yield running


def test_some_calls_leave_little_behind(interlock: Interlock, server: ServerHandle) -> None:
    told: list[int] = []
    soak(interlock, server.port, 80, lambda *_: None, every=1000)  # what is made once is made
    found = soak(interlock, server.port, 240, lambda calls, _: told.append(calls), every=40)
    assert (found.calls, told) == (240, [40, 80, 120, 160, 200, 240])
    first, last = found.samples[0][1], found.samples[-1][1]
    assert last - first < 10 * MIB, f"{(last - first) / KB:.0f} KB for 240 calls"


@pytest.mark.parametrize("sent", [b"", SLOW_HEAD], ids=["idle", "slow head"])
def test_a_crowd_that_holds_on_takes_little_keeps_nobody_out_and_ends(
    sent: bytes, interlock: Interlock, server: ServerHandle, capsys: pytest.CaptureFixture[str]
) -> None:
    before = memory(interlock)
    with crowd(interlock.port, CROWD, sent) as held:
        answered(interlock.port, server.port)
        grown = memory(interlock) - before
        with capsys.disabled():
            sys.stdout.write(f"\n{CROWD} connections, {'slow heads' if sent else 'idle'}: +{grown / MIB:.1f} MiB\n")
        assert grown < CROWD * 100 * KB
        for sock in held:
            with contextlib.suppress(ConnectionError):
                while sock.recv(4096):
                    pass
    wait_until(lambda: interlock_connections(interlock) == 0)


def interlock_connections(interlock: Interlock) -> int:
    with urllib.request.urlopen(f"{interlock.health_url}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("interlock_connections "))))


def test_a_slope_is_that_of_the_second_half() -> None:
    grows = Soak(1000, 1.0, [(0, 0), (100, 900 * KB), (500, 1000 * KB), (1000, 1010 * KB)])
    assert (round(grows.slope, 3), grows.flat) == (20.0, True)
    assert not Soak(1000, 1.0, [(0, 0), (500, 0), (1000, 11 * KB)]).flat
    assert Soak(10, 1.0, [(0, 5)]).slope == 0.0
