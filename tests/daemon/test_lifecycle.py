"""Starting, stopping, and what is left behind."""

from __future__ import annotations

import json
import socket
import threading

import httpx2
import pytest

from tests.faults.load import wait_until
from tests.support.harness import interlock_cli, start_interlock, start_python_server
from tests.support.raw_socket import send_raw
from tests.support.timeouts import PATIENCE

SLOW = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {"ms": 1500}}}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


def test_a_call_under_way_finishes_before_the_proxy_exits(tmp_path):
    with (
        start_python_server("python_modern", tmp_path / "server", flags=["--stateless", "--json"]) as server,
        start_interlock(tmp_path / "proxy") as interlock,
    ):
        answers: list[httpx2.Response] = []

        def call() -> None:
            with httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False) as http:
                answers.append(http.post(f"{server.url}/mcp", json=SLOW, headers=HEADERS))

        thread = threading.Thread(target=call)
        thread.start()
        wait_until(server.executions)
        interlock.stop()
        thread.join(PATIENCE)
    assert answers[0].json()["result"]["content"][0]["text"] == "slept 1500 ms"
    outcomes = [e["outcome"] for e in interlock.events() if e["kind"] == "completed"]
    assert outcomes == ["done"]


def test_a_call_that_outlives_the_drain_is_recorded_with_an_unknown_outcome(tmp_path):
    slow = json.loads(json.dumps(SLOW).replace("1500", "60000"))
    with (
        start_python_server("python_modern", tmp_path / "server", flags=["--stateless", "--json"]) as server,
        start_interlock(tmp_path / "proxy", settings={"drain_timeout": 0.5}) as interlock,
    ):

        def call() -> None:
            client = httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False)
            with client as http, pytest.raises(httpx2.TransportError):
                http.post(f"{server.url}/mcp", json=slow, headers=HEADERS)

        thread = threading.Thread(target=call)
        thread.start()
        wait_until(server.executions)
        interlock.stop()
        thread.join(PATIENCE)
    completed = [e for e in interlock.events() if e["kind"] == "completed"]
    assert [e["outcome"] for e in completed] in (["unknown"], ["upstream_error"])


def test_the_run_file_goes_with_the_proxy_and_it_has_nothing_to_complain_of(tmp_path):
    with start_interlock(tmp_path) as interlock:
        assert (interlock.state_dir / "run.json").exists()
        interlock.stop()
    assert not (interlock.state_dir / "run.json").exists()
    assert '"level":"error"' not in interlock.errors()


def test_an_address_in_use_stops_the_start_with_the_way_out(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = interlock_cli("up", "--listen", address, "--state-dir", str(tmp_path))
    assert done.returncode == 1
    assert address in done.stderr
    assert "--listen" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--listen", "nowhere"], "nowhere"),
        (["--mode", "sideways"], "sideways"),
        (["--policy", "/does/not/exist.yaml"], "/does/not/exist.yaml"),
        (["--upstream-ca", "/does/not/exist.pem"], "/does/not/exist.pem"),
        (["--body-limit", "lots"], "lots"),
    ],
)
def test_a_wrong_setting_stops_the_start_and_is_named(tmp_path, flags, expected):
    done = interlock_cli("up", "--state-dir", str(tmp_path), *flags)
    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_one_log_line_per_decision_and_no_arguments_in_it(tmp_path):
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","arguments":{"note":"hush-hush"}}}'
    head = f"POST http://127.0.0.1:9/mcp HTTP/1.1\r\nHost: 127.0.0.1:9\r\nContent-Length: {len(body)}\r\n\r\n"
    with start_interlock(tmp_path) as interlock:
        send_raw("127.0.0.1", interlock.port, [head.encode() + body])
    lines = [json.loads(line) for line in interlock.errors().splitlines() if line.startswith("{")]
    decided = [line for line in lines if line["event"] == "decided"]
    assert len(decided) == 1
    assert {k: decided[0][k] for k in ("agent", "server", "tool", "decision", "reason", "rule")} == {
        "agent": "agent",
        "server": "127.0.0.1:9",
        "tool": "danger",
        "decision": "deny",
        "reason": "policy_denied",
        "rule": "no-danger",
    }
    assert decided[0]["call_id"]
    assert decided[0]["ms"] >= 0
    assert "hush-hush" not in interlock.errors()


def test_a_denied_call_never_opens_a_connection_to_the_server(tmp_path):
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}'
    with socket.create_server(("127.0.0.1", 0)) as listener, start_interlock(tmp_path) as interlock:
        listener.settimeout(0.3)
        port = listener.getsockname()[1]
        host = f"127.0.0.1:{port}"
        head = f"POST http://{host}/mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        assert b"policy_denied" in send_raw("127.0.0.1", interlock.port, [head.encode() + body])
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_second_proxy_on_the_same_state_folder_does_not_start(tmp_path):
    with start_interlock(tmp_path) as interlock:
        done = interlock_cli("up", "--listen", "127.0.0.1:0", "--state-dir", str(interlock.state_dir))
        assert (done.returncode, "--state-dir" in done.stderr) == (1, True)
        assert (interlock.state_dir / "run.json").exists()


def test_a_note_left_by_a_killed_proxy_does_not_mislead(tmp_path):
    with start_interlock(tmp_path) as first:
        first.process.kill()
        first.process.wait(PATIENCE)
        first.stopped = True
        assert (first.state_dir / "run.json").exists()
    with start_interlock(tmp_path) as second:
        assert second.run["pid"] == second.process.pid
