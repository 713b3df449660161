"""The console's process: when it starts, and what it leaves in the trail."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.console import server
from proxy.console.security import split_place
from proxy.identity.token_file import read_token
from tests.support.console_fixture import Desk
from tests.support.console_world import World, start_world
from tests.support.timeouts import PATIENCE


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_world(tmp_path_factory.mktemp("world")) as started:
        yield started


class Browser(contextlib.AbstractContextManager["Browser"]):
    def __init__(self, world: World) -> None:
        self._url = world.interlock.console_url
        self._http = http.client.HTTPConnection(self._url.removeprefix("http://"), timeout=PATIENCE)
        self.headers = {"Accept": "text/html", "Origin": self._url}
        self.place = ""

    def request(self, method: str, path: str, body: str | None = None) -> tuple[int, str, http.client.HTTPMessage]:
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        self._http.request(method, self.place + path, body, self.headers | form)
        answer = self._http.getresponse()
        return answer.status, answer.read().decode(), answer.headers

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def log_in(self, token: str) -> None:
        status, _, headers = self.request("POST", "/login", f"token={token}")
        assert status == 303
        self.place, _ = split_place(headers["location"])
        self.headers["Cookie"] = headers["set-cookie"].partition(";")[0]


def children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def test_the_first_browser_starts_it_and_the_next_one_after_it_was_killed(world: World) -> None:
    supervisor = world.interlock.process.pid
    workers = set(world.interlock.worker_pids)
    assert children(supervisor) == workers
    with Browser(world) as browser:
        assert browser.request("GET", "/login")[0] == 200
    (console,) = children(supervisor) - workers
    os.kill(console, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while console in children(supervisor) and time.monotonic() < deadline:
        time.sleep(0.01)
    with Browser(world) as again:
        assert again.request("GET", "/login")[0] == 200
    assert set(world.interlock.worker_pids) == workers


def token(world: World) -> str:
    return read_token(world.interlock.state_dir / "keys" / "operator.token")


def test_a_call_is_on_the_page_and_the_login_in_the_trail(world: World) -> None:
    with Browser(world) as browser:
        browser.log_in(token(world))
        refused = world.call("read_file", {"path": "/etc/passwd"})
        status, text, _ = browser.request("GET", "/calls")
    assert status == 200
    assert world.audit_id(refused) in text
    kinds = [event["kind"] for event in world.interlock.events()]
    assert "operator_login" in kinds


def test_an_agent_gets_a_link_that_works_and_holds_no_credential(world: World) -> None:
    proposed = world.propose(amount=100, to="bob")
    page = f"{world.interlock.console_url}/approvals/{proposed['proposal_id']}"
    assert page in json.dumps(proposed)
    assert "ill_" not in json.dumps(proposed)
    with Browser(world) as browser:
        assert browser.request("GET", page.removeprefix(world.interlock.console_url))[0] == 303
        browser.log_in(token(world))
        assert browser.request("GET", page.removeprefix(world.interlock.console_url))[0] == 200


def test_the_trail_of_the_console_is_chained_like_any_other(world: World) -> None:
    with Browser(world) as browser:
        browser.log_in(token(world))
    world.interlock.events()
    verified = world.interlock.cli("audit", "verify", "--json")
    summary = json.loads(verified.stdout.splitlines()[-1])
    assert verified.returncode in (0, 3), verified.stdout
    assert not [line for line in verified.stdout.splitlines() if "altered" in line or "missing" in line], summary


def test_the_proxy_stops_cleanly_while_pages_are_open(tmp_path: Path) -> None:
    with start_world(tmp_path) as world, Browser(world) as browser:
        browser.log_in(token(world))
        address = world.interlock.console_url.removeprefix("http://")
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), PATIENCE) as stream:
            cookie = browser.headers["Cookie"]
            stream.sendall(
                f"GET {browser.place}/stream?calls=1 HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n".encode()
            )
            assert b"text/event-stream" in stream.recv(4096)
            world.interlock.stop()


async def test_a_request_that_is_never_finished_is_closed_and_a_stream_is_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_SECONDS", 0.05)
    await desk.log_in()
    (cookie,) = list(desk.http.cookies.jar)
    serving = server.make_server(desk.app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(serving.serve([listener]))
        address = listener.getsockname()
        async with asyncio.timeout(PATIENCE):
            slow, slow_writer = await asyncio.open_connection(*address)
            slow_writer.write(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1:8090\r\n")
            stream, stream_writer = await asyncio.open_connection(*address)
            head = f"GET {cookie.path}stream HTTP/1.1\r\nHost: 127.0.0.1:8090\r\n"
            stream_writer.write(f"{head}Cookie: {cookie.name}={cookie.value}\r\n\r\n".encode())
            await stream.readuntil(b"retry: 2000")
            assert await slow.read() == b""
            # By then the stream has outlived the bound several times.
            await stream.readuntil(b"still here")
        stream_writer.close()
        slow_writer.close()
        serving.should_exit = True
        await task
