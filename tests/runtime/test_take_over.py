"""A new proxy takes the sockets of the one that runs: nothing is refused, lost or doubled, whatever fails."""

from __future__ import annotations

import http.client
import json
import os
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.runtime.take_over import TakeOver, knock
from tests.daemon.lines_to import events, text_of
from tests.faults.load import Load, Seen, marks, wait_until
from tests.support.harness import Interlock, ServerHandle, free_port, start_interlock, start_python_server
from tests.support.take_over import begin_take_over, ended, take_over
from tests.support.timeouts import PATIENCE

BRIEF = ["--drain-timeout", "3"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("lenient", tmp_path_factory.mktemp("server")) as running:
        yield running


def test_three_restarts_under_load_refuse_nothing_and_every_call_is_recorded_once(
    tmp_path: Path, server: ServerHandle
) -> None:
    seen, descriptors = Seen(), []
    with start_interlock(tmp_path, flags=["--workers", "2", *BRIEF]) as first:
        running = first
        with Load(first.port, server.port, marks(), seen):
            for _ in range(3):
                before = len(seen.acknowledged)
                wait_until(lambda before=before: len(seen.acknowledged) > before + 50)
                following = take_over(running)
                assert following.run["listen"] == running.run["listen"]
                assert following.run["health"] == running.run["health"]
                assert ended(running) == 0, running.errors()
                running = following
                descriptors.append(len(list(Path(f"/proc/{running.run['pid']}/fd").iterdir())))
            before = len(seen.acknowledged)
            wait_until(lambda: len(seen.acknowledged) > before + 50)
        running.stop()
        assert descriptors[-1] <= descriptors[0], descriptors
        assert (seen.unconnected, seen.unanswered, seen.refused, seen.reasons) == (0, 0, 0, set())
        events = running.recorded()
    executed = Counter(each["arguments"]["mark"] for each in server.executions())
    assert set(executed) >= seen.acknowledged
    assert max(executed.values()) == 1
    decided = Counter(each["call_id"] for each in events if each["kind"] == "decided")
    completed = Counter(each["call_id"] for each in events if each["kind"] == "completed")
    assert len(decided) == len(executed)
    assert decided == completed
    verified = running.cli("audit", "verify", "--json")
    assert verified.returncode == 0, verified.stdout


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("python_sse", tmp_path_factory.mktemp("legacy")) as running:
        yield running


class Client:
    """One connection through a proxy."""

    def __init__(self, interlock: Interlock, url: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", interlock.port, timeout=PATIENCE)
        self._url = url

    def send(self, method: str, path: str, value: Any = None) -> http.client.HTTPResponse:
        body = json.dumps(value) if value is not None else None
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        self._connection.request(method, self._url + path, body, headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()


def asks(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def begins(number: int = 0) -> dict[str, Any]:
    params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return {"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params}


def works(interlock: Interlock, server: ServerHandle) -> bool:
    client = Client(interlock, server.url)
    answer = json.loads(client.send("POST", "/mcp", asks(1, "echo", mark="w")).read())
    client.close()
    return "result" in answer


def test_a_legacy_session_goes_on_over_both_proxies_and_calls_under_way_end(
    tmp_path: Path, legacy: ServerHandle
) -> None:
    with start_interlock(tmp_path, flags=["--workers", "1", "--drain-timeout", "30"]) as old:
        reader, writer = Client(old, legacy.url), Client(old, legacy.url)
        response = reader.send("GET", "/sse")
        stream = (event["data"] for event in events(response))
        path = next(stream)
        for message in (begins(), {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            assert writer.send("POST", path, message).read() == b"Accepted"
        assert json.loads(next(stream))["id"] == 0
        writer.send("POST", path, asks(1, "slow", ms=60_000)).read()
        new = take_over(old)
        later = Client(new, legacy.url)
        later.send("POST", path, asks(2, "echo", text="over")).read()
        assert text_of(json.loads(next(stream))) == "over"
        later.send("POST", path, asks(3, "danger")).read()
        assert "policy_denied" in next(stream)
        last = writer.send("POST", path, asks(4, "echo", text="kept alive"))
        assert last.headers["connection"] == "close", "the client comes back to the new one"
        last.read()
        assert text_of(json.loads(next(stream))) == "kept alive"
        legacy.wake()
        assert "slept" in next(stream)
        for client in (reader, writer, later):
            client.close()
        response.close()
        assert ended(old) == 0, old.errors()
        new.stop()
        recorded = [event for event in new.recorded() if event.get("tool") or event["kind"] == "completed"]
    outcomes = Counter(event["outcome"] for event in recorded if event["kind"] == "completed")
    assert outcomes["done"] >= 4
    assert not {"unknown", "interrupted"} & set(outcomes), recorded


def test_a_new_one_that_cannot_start_changes_nothing_and_both_say_why(tmp_path: Path, server: ServerHandle) -> None:
    with start_interlock(tmp_path, flags=BRIEF) as old:
        run = json.loads((old.state_dir / "run.json").read_bytes())
        bad = tmp_path / "bad.yaml"
        bad.write_text("version: 1\ndefault: maybe\n")
        process, stderr = begin_take_over(old, "--policy", str(bad))
        with process:
            assert process.wait(PATIENCE) == 1
        assert "default" in stderr.read_text()
        wait_until(lambda: "the take-over failed, this proxy goes on" in old.errors())
        assert "maybe" in old.errors()
        assert json.loads((old.state_dir / "run.json").read_bytes())["pid"] == run["pid"]
        assert works(old, server)
        assert old.cli("status").returncode == 0


def test_another_port_is_opened_and_the_old_one_is_given_up(tmp_path: Path, server: ServerHandle) -> None:
    with start_interlock(tmp_path, flags=BRIEF) as old:
        new = take_over(old, "--listen", f"127.0.0.1:{free_port()}", "--workers", "2")
        assert new.port != old.port
        assert ended(old) == 0
        assert works(new, server)
        with pytest.raises(ConnectionRefusedError):
            works(old, server)
        new.stop()


def test_of_two_take_overs_at_once_one_is_refused(tmp_path: Path, server: ServerHandle) -> None:
    with start_interlock(tmp_path, flags=BRIEF) as old:
        first = TakeOver.begin(old.state_dir)
        assert first is not None
        assert first.logs == [1]
        with pytest.raises(ConfigError, match=rf"process {os.getpid()} is taking over already"):
            TakeOver.begin(old.state_dir)
        first.close()  # as if it had been killed
        wait_until(lambda: "the take-over failed, this proxy goes on" in old.errors())
        new = take_over(old)
        assert ended(old) == 0
        assert works(new, server)
        new.stop()


def test_whichever_is_killed_the_other_serves(tmp_path: Path, server: ServerHandle) -> None:
    with start_interlock(tmp_path, flags=BRIEF) as old:
        process, _ = begin_take_over(old)
        with process:
            wait_until(lambda: "another process is taking over" in old.errors())
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
        wait_until(lambda: "the take-over failed" in old.errors())
        assert works(old, server)
        process, stderr = begin_take_over(old)
        wait_until(lambda: old.errors().count("another process is taking over") == 2)
        old.process.send_signal(signal.SIGKILL)
        old.process.wait(PATIENCE)
        old.stopped = True
        wait_until(lambda: json.loads((old.state_dir / "run.json").read_bytes())["pid"] == process.pid)
        new = Interlock(process, old.state_dir, stderr, json.loads((old.state_dir / "run.json").read_bytes()))
        assert new.port == old.port
        assert works(new, server)
        with urllib.request.urlopen(f"{new.health_url}/readyz", timeout=PATIENCE) as answer:
            assert answer.status == 200
        new.stop()
        assert not list(old.state_dir.glob("*.sock"))


def test_nobody_knocks_where_no_proxy_runs(tmp_path: Path) -> None:
    assert knock(tmp_path, "take_over") is None
    assert TakeOver.begin(tmp_path) is None
