"""One worker: what it makes of the settings, and what it does as a process of the proxy.

How it drains, reloads and forwards is tested with the whole proxy, in tests/daemon and tests/acceptance.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import tests.addons  # noqa: F401  imports mitmproxy as the proxy does: leanly, and before the worker

# isort: split

from addons.limits import Limits
from proxy.config import Settings
from proxy.runtime.worker import _limits, _why
from tests.support.harness import Interlock, start_interlock
from tests.support.raw_socket import parse_answers, send_raw
from tests.support.timeouts import PATIENCE

ALLOW_EVERYTHING = """\
version: 1
default: allow
egress:
  default: allow
  rules:
    - {id: everything, action: allow, hosts: ["*"]}
"""


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    flags = ["--workers", "1", "--operator-listen", "127.0.0.1:0"]
    with start_interlock(tmp_path_factory.mktemp("one"), policy=ALLOW_EVERYTHING, flags=flags) as running:
        yield running


def test_every_limit_comes_from_its_setting(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path,
        header_limit="1111",
        header_timeout=2,
        body_limit="3333",
        body_timeout=4,
        response_limit="5555",
        event_limit="6666",
        stream_limit=7,
        large_uploads=("*.example.com",),
        hold_keepalive=8,
    )
    limits = _limits(settings)
    assert limits == Limits(1111, 2, 3333, 4, 5555, 6666, 7, ("*.example.com",), 8)
    unset = [field.name for field in fields(Limits) if getattr(limits, field.name) == field.default]
    assert unset == []


def test_the_defaults_of_limits_and_settings_agree(tmp_path: Path) -> None:
    assert _limits(Settings(state_dir=tmp_path)) == Limits()


async def test_the_reason_that_a_worker_gives_up_is_what_ended_its_task() -> None:
    async def fail() -> None:
        raise OSError("gone")

    failed, fine, running = (asyncio.ensure_future(each) for each in (fail(), asyncio.sleep(0), asyncio.sleep(60)))
    await asyncio.wait([failed, fine])
    cancelled = asyncio.ensure_future(asyncio.sleep(60))
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert str(_why(running, cancelled, fine, failed)) == "gone"
    assert _why(running, cancelled, fine) is None
    running.cancel()


@pytest.mark.parametrize("name", ["operator_listen", "health", "listen"])
def test_an_agent_cannot_reach_the_proxys_own_addresses_whatever_the_policy_allows(
    interlock: Interlock, name: str
) -> None:
    own = interlock.run[name]
    request = f"GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n".encode()
    (answer,) = parse_answers(send_raw("127.0.0.1", interlock.port, [request]))
    assert answer.status == 403


def test_a_worker_ends_with_the_supervisor_that_was_killed(tmp_path: Path) -> None:
    with start_interlock(tmp_path, flags=["--workers", "1"]) as running:
        handle = os.pidfd_open(*running.worker_pids)
        try:
            os.kill(running.process.pid, signal.SIGKILL)
            running.process.wait(PATIENCE)
            running.stopped = True
            assert select.select([handle], [], [], PATIENCE)[0], "the worker outlived its supervisor"
        finally:
            os.close(handle)
