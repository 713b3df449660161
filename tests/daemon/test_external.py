"""External rules through the real proxy: over HTTP, WebSocket and stdio, asked of a service that speaks OPA's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from tests.daemon.conftest import Pair
from tests.support.decision_service import DecisionService, start_service
from tests.support.harness import ServerHandle, start_interlock
from tests.support.stdio_harness import recorder, start_run
from tests.support.timeouts import PATIENCE

POLICY = """
version: 1
default: allow
rules:
  - {id: ask-opa, action: external, service: opa, tools: [danger, echo]}
"""


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def only_echo(asked: Any) -> Any:
    allow = asked["input"]["tool"] == "echo" and asked["input"]["arguments"].get("n") != 13
    return {"result": {"allow": allow, "reason": "" if allow else "danger is for people"}}


@pytest.fixture(scope="module")
def service() -> Iterator[DecisionService]:
    with start_service() as made:
        made.decide = only_echo
        yield made


def settings(service: DecisionService, folder: Path) -> dict[str, Any]:
    opa = {"name": "opa", "type": "opa", "url": f"{service.url}/v1/data/interlock/main", "timeout_seconds": 2}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "external.yaml").write_text(json.dumps({"services": [opa]}))
    return {"external": str(folder / "external.yaml")}


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, web: ServerHandle, service: DecisionService) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("external")
    with start_interlock(folder, policy=POLICY, settings=settings(service, folder)) as interlock:
        yield Pair(interlock, web)


@pytest.fixture
def http(asking: Pair) -> Iterator[httpx2.Client]:
    with httpx2.Client(proxy=asking.interlock.proxy_url, timeout=PATIENCE, trust_env=False) as made:
        yield made


def reason(answer: Any) -> str | None:
    meta = (answer.get("result") or {}).get("_meta") or {}
    return (meta.get("mcp-interlock/denial") or {}).get("reason")


def test_over_http_each_call_is_asked_about_also_in_the_lane(
    asking: Pair, http: httpx2.Client, service: DecisionService
) -> None:
    before = len(service.asked)
    found = [reason(http.post(f"{asking.server.url}/echo", json=call("echo", n=n)).json()) for n in range(10, 16)]
    assert found == [None, None, None, "external_denied", None, None]
    assert len(service.asked) == before + 6
    refused = http.post(f"{asking.server.url}/echo", json=call("danger")).json()
    assert "danger is for people" in str(refused)


def test_secrets_do_not_reach_the_service(asking: Pair, http: httpx2.Client, service: DecisionService) -> None:
    key = "ghp_" + "a1B2" * 9
    http.post(f"{asking.server.url}/echo", json=call("echo", key=key))
    assert key not in str(service.asked[-1])
    assert "key" in service.asked[-1]["input"]["arguments"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"status": 500}, "external_unavailable"),
        ({"raw": b"yes"}, "external_answer"),
        ({"status": 302, "headers": {"Location": "/"}}, "external_answer"),
    ],
)
def test_a_service_that_fails_refuses(
    asking: Pair,
    http: httpx2.Client,
    service: DecisionService,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    expected: str,
) -> None:
    asking.server.new_executions()
    for name, value in change.items():
        monkeypatch.setattr(service, name, value)
    assert reason(http.post(f"{asking.server.url}/echo", json=call("echo")).json()) == expected
    assert asking.server.new_executions() == []


def test_no_answer_in_time_refuses(
    asking: Pair, http: httpx2.Client, service: DecisionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    monkeypatch.setattr(service, "held", held)
    assert reason(http.post(f"{asking.server.url}/echo", json=call("echo")).json()) == "external_timeout"
    held.set()


async def test_over_websocket_calls_are_asked_about(asking: Pair) -> None:
    url = f"ws://{asking.target}/ws"
    async with connect(url, proxy=asking.interlock.proxy_url, open_timeout=PATIENCE) as socket:
        await socket.send(json.dumps(call("danger")))
        assert reason(json.loads(await socket.recv())) == "external_denied"
        await socket.send(json.dumps(call("echo")))
        assert reason(json.loads(await socket.recv())) is None


def test_over_stdio_calls_are_asked_about(tmp_path: Path, service: DecisionService) -> None:
    config = tmp_path / "interlock.yaml"
    config.write_text(json.dumps(settings(service, tmp_path)))
    with start_run(tmp_path, recorder(tmp_path / "log"), "--config", str(config), policy=POLICY) as run:
        run.send(call("danger"))
        assert reason(run.receive()) == "external_denied"
        run.send(call("echo"))
        assert reason(run.receive()) is None
