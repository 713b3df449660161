"""The health page."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator

import pytest

from proxy.console.health_page import ask_ready
from proxy.errors import StoreUnavailableError
from proxy.system import run_file
from proxy.system.run_file import RunningProxy, RunningWorker
from tests.support.audit_fixture import TRAIL, World
from tests.support.console_fixture import Desk

ANSWERS = {
    "ready": b'{"ready": true, "not_ready": {}}',
    "not": b'{"ready": false, "not_ready": {"workers": "<b>1 of 2</b>"}}',
    "nonsense": b"[1]",
    "cut": b'{"ready',
}


@pytest.fixture
def ready(request: pytest.FixtureRequest) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ANSWERS[request.param])

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def running(desk: Desk, **fields: object) -> None:
    plain: dict[str, object] = {"pid": os.getpid(), "listen": "127.0.0.1:1", "mode": "regular", "ca": "ca.pem"}
    policy: dict[str, object] = {"policy": "p.yaml", "policy_version": "f" * 64, "started": 1.0}
    workers = (RunningWorker(1, 5, serves=True, restarts=0),)
    made = RunningProxy(**(plain | policy | {"workers": workers} | fields))  # type: ignore[arg-type]
    run_file.write(desk.console.settings.state_dir, made)


async def page(desk: Desk) -> str:
    answer = await desk.http.get("/health")
    assert answer.status_code == 200
    return answer.text


async def test_all_is_well_where_the_proxy_serves(desk: Desk) -> None:
    World(desk.console.trail.state_dir, None).record(*TRAIL)
    running(desk)
    await desk.log_in()
    text = await page(desk)
    assert "1 of 1 serve." in text
    assert "6 events wait for the store" in text
    assert "health_listen" in text


@pytest.mark.parametrize("ready", ANSWERS, indirect=True)
async def test_what_readyz_says_is_shown(ready: str, desk: Desk) -> None:
    running(desk, health=ready)
    await desk.log_in()
    text = await page(desk)
    said = ask_ready(ready)
    assert said is not None
    assert ("all is well" in text) == (said["ready"] is True)
    assert "<b>" not in text


async def test_a_proxy_that_does_not_run_or_serve_is_wrong(desk: Desk) -> None:
    await desk.log_in()
    assert "No proxy runs" in await page(desk)
    running(desk, workers=(RunningWorker(1, 0, serves=False, restarts=3),), policy_problem="p.yaml:1: <i>bad</i>")
    text = await page(desk)
    assert "something is wrong" in text
    assert "0 of 1 serve." in text
    assert "&lt;i&gt;bad" in text


async def test_a_store_that_does_not_answer_is_wrong(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StoreUnavailableError("the store is locked")

    running(desk)
    await desk.log_in()
    monkeypatch.setattr(desk.console.trail, "store", fail)
    text = await page(desk)
    assert "the store is locked" in text
    assert "something is wrong" in text


def test_an_address_that_nobody_answers_is_told() -> None:
    assert ask_ready(None) is None
    said = ask_ready("127.0.0.1:9")
    assert said is not None
    assert said["ready"] is False
