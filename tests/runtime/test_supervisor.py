"""Several workers: one port, one state, and a supervisor that replaces, tells and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.reload import replace_policy, wait_for
from tests.faults.load import Load, wait_until
from tests.faults.scenes import Scene
from tests.support.harness import (
    DENY_ALL_DANGER,
    REPOSITORY,
    Interlock,
    ServerHandle,
    environment,
    free_port,
    interlock_cli,
    send_raw,
    start_interlock,
    start_python_server,
)
from tests.support.processes import Process, start_module
from tests.support.timeouts import PATIENCE

TWO = ["--workers", "2"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("lenient", tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("two"), flags=TWO) as running:
        yield running


def call(tool: str, target: str) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}).encode()
    head = f"POST http://{target}/mcp HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def refuse(interlock: Interlock) -> int:
    """Have a call refused on a connection of its own; return the number of the worker that did."""
    seen = len(decisions(interlock))
    assert b"policy_denied" in send_raw("127.0.0.1", interlock.port, [call("danger", "127.0.0.1:9")])
    wait_until(lambda: len(decisions(interlock)) > seen)
    return int(decisions(interlock)[-1]["worker"])


def decisions(interlock: Interlock) -> list[dict[str, Any]]:
    """Return the log lines that tell of decisions."""
    whole = interlock.errors().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "decided"]


def every_worker(act: Callable[[], int], workers: int = 2) -> None:
    """Act, on one connection after another, until each worker has had its turn."""
    met: set[int] = set()
    for _ in range(200):
        met.add(act())
        if len(met) == workers:
            return
    raise AssertionError(f"only {met} of {workers} workers were met")


def health(interlock: Interlock, path: str = "/readyz") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{interlock.health_url}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_workers_share_a_chosen_port_and_each_decides_and_writes(two: Interlock) -> None:
    every_worker(lambda: refuse(two))
    writers = {event["writer"] for event in two.events()}
    assert len(writers) == 2
    logs = sorted(path.name for path in (two.state_dir / "log").glob("*.db"))
    assert logs == ["events-2.db", "events.db"]
    verified = two.cli("audit", "verify", "--json")
    assert verified.returncode == 0, verified.stdout


def opened_by(pid: int) -> list[str]:
    return [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115  as it is written


def test_nothing_that_cannot_be_forked_is_in_the_supervisor(two: Interlock) -> None:
    assert len(list(Path(f"/proc/{two.process.pid}/task").iterdir())) == 1
    assert not [path for path in opened_by(two.process.pid) if ".db" in path or "eventpoll" in path]
    for pid in two.worker_pids:
        assert str(two.state_dir / "lock") not in opened_by(pid), "a worker that lives on would keep the folder"


def test_the_proxy_forwards_nothing_to_its_health_port(two: Interlock) -> None:
    port = int(two.run["health"].rpartition(":")[2])
    for host in ("127.0.0.1", "localhost", "0.0.0.0", "127.1"):
        request = f"GET http://{host}:{port}/metrics HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
        answer = send_raw("127.0.0.1", two.port, [request.encode()])
        assert b"interlock_build_info" not in answer
        assert not answer.startswith(b"HTTP/1.1 200"), host


def test_metrics_and_status_speak_for_all_workers(two: Interlock) -> None:
    def decided() -> int:
        found = re.search(
            r'interlock_calls_total\{decision="deny",reason="policy_denied"\} (\d+)', health(two, "/metrics")[1]
        )
        return int(found[1]) if found else 0

    before = decided()
    for _ in range(5):
        refuse(two)
    assert decided() == before + 5
    assert health(two) == (200, '{"ready": true, "not_ready": {}}\n')
    told = json.loads(two.cli("status", "--json").stdout)
    assert [worker["serves"] for worker in told["workers"]] == [True, True]
    assert {worker["pid"] for worker in told["workers"]} == set(two.worker_pids)
    shown = two.cli("status").stdout
    assert "2 of 2 serve" in shown
    assert two.run["health"] in shown


def test_a_reload_reaches_every_worker_and_a_bad_one_shows_in_readiness(two: Interlock) -> None:
    replace_policy(two, DENY_ALL_DANGER.replace("dany", "").replace("action: deny", "action: dney", 1))
    wait_for(two, lambda run: run["policy_problem"] is not None)
    status, said = health(two)
    assert (status, list(json.loads(said)["not_ready"])) == (503, ["policy"])
    version = two.run["policy_version"]
    replace_policy(two, DENY_ALL_DANGER.replace("[danger]", "[danger, other]"))
    run = wait_for(two, lambda run: run["policy_version"] != version and run["policy_problem"] is None)
    assert {worker["policy_version"] for worker in run["workers"]} == {run["policy_version"]}
    for _ in range(20):
        assert b"policy_denied" in send_raw("127.0.0.1", two.port, [call("other", "127.0.0.1:9")])


def test_a_worker_killed_under_load_loses_nothing_and_is_replaced(tmp_path: Path, server: ServerHandle) -> None:
    scene = Scene("kill a worker", tmp_path, server, None)
    with start_interlock(tmp_path, policy="version: 1\ndefault: allow\n", flags=TWO) as interlock:
        with Load(interlock.port, server.port, scene.marks, scene.seen):
            for number in (0, 1):
                scene.reach(50)
                victim = interlock.worker_pids[number]
                os.kill(victim, signal.SIGKILL)
                run = wait_for(
                    interlock,
                    lambda run, number=number, victim=victim: run["workers"][number]["pid"] not in (0, victim),
                )
                assert run["pid"] == interlock.process.pid
            wait_until(lambda: health(interlock)[0] == 200)
            scene.reach(50)
        restarts = json.loads((interlock.state_dir / "run.json").read_bytes())["workers"]
        assert [worker["restarts"] for worker in restarts] == [1, 1]
        assert "interlock_worker_restarts_total 2" in health(interlock, "/metrics")[1]
        scene.drain(interlock)
    counts = scene.count()
    assert counts.good, counts
    assert counts.stored >= counts.executed >= counts.acknowledged


def test_a_worker_that_takes_a_place_later_knows_the_policy_in_force_and_not_an_older_one(tmp_path: Path) -> None:
    with start_interlock(tmp_path, policy=DENY_ALL_DANGER.replace("[danger]", "[nothing]"), flags=TWO) as interlock:
        version = interlock.run["policy_version"]
        replace_policy(interlock, DENY_ALL_DANGER)
        good = wait_for(interlock, lambda run: run["policy_version"] != version)
        replace_policy(interlock, "rules: [")
        wait_for(interlock, lambda run: run["policy_problem"] is not None)
        for pid in interlock.worker_pids:
            os.kill(pid, signal.SIGKILL)
        run = wait_for(interlock, lambda run: all(worker["serves"] and worker["restarts"] for worker in run["workers"]))
        assert {worker["policy_version"] for worker in run["workers"]} == {good["policy_version"]}
        every_worker(lambda: refuse(interlock))


def test_a_stop_reaches_all_and_lets_calls_finish(tmp_path: Path) -> None:
    with (
        start_python_server("python_modern", tmp_path / "server", flags=["--stateless", "--json"]) as slow,
        start_interlock(tmp_path / "proxy", flags=TWO) as interlock,
    ):
        pids, answers = interlock.worker_pids, []
        params = {"name": "slow", "arguments": {"ms": 800}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        head = (
            f"POST {slow.url}/mcp HTTP/1.1\r\nHost: 127.0.0.1:{slow.port}\r\n"
            "Accept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        threads = [
            threading.Thread(target=lambda: answers.append(send_raw("127.0.0.1", interlock.port, [head + body])))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(slow.executions()) == 6)
        interlock.process.send_signal(signal.SIGINT)  # SIGTERM ends every other proxy of these tests
        assert interlock.process.wait(PATIENCE) == 0
        interlock.stopped = True
        for thread in threads:
            thread.join(PATIENCE)
    assert [b"slept 800 ms" in answer for answer in answers] == [True] * 6
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not (interlock.state_dir / "run.json").exists()
    assert not (interlock.state_dir / "operator.sock").exists()


@contextlib.contextmanager
def bare(tmp_path: Path, *flags: str) -> Iterator[Process]:
    """Run `interlock up` with these flags and what it needs, until the block ends it."""
    argv = ["proxy.cli", "up", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"), *flags]
    with (tmp_path / "stderr").open("wb") as errors:
        process = start_module(*argv, env=environment(), stdout=errors, stderr=errors)
    with process:
        yield process


def test_a_stop_while_it_starts_is_no_error(tmp_path: Path) -> None:
    with bare(tmp_path, "--health-listen", "off", "--workers", "2") as process:
        wait_until((tmp_path / "state" / "operator.sock").exists)
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    assert code in (0, -signal.SIGTERM), (tmp_path / "stderr").read_text()


def test_workers_that_keep_ending_are_given_up_with_the_reason(tmp_path: Path) -> None:
    with start_interlock(tmp_path, flags=["--workers", "1"], program=["tests.daemon.crashing"]) as interlock:
        deadline = time.monotonic() + PATIENCE
        while interlock.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", interlock.port), 1) as sock:
                sock.sendall(call("danger", "127.0.0.1:9"))
                sock.recv(1)
        assert interlock.process.wait(PATIENCE) == 1
        interlock.stopped = True
    assert "every worker failed 5 times in a row" in interlock.errors()
    assert "Traceback" not in interlock.errors().splitlines()[-1]


def test_a_health_port_that_was_set_and_is_taken_stops_the_start_and_the_default_does_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ["--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "set")]
        done = interlock_cli("up", *flags, "--health-listen", address)
        assert (done.returncode, address in done.stderr) == (1, True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # then somebody else has it
            stack.enter_context(socket.create_server(("127.0.0.1", 8081)))
        process = stack.enter_context(bare(tmp_path, "--workers", "1"))
        wait_until((tmp_path / "state" / "run.json").exists)
        assert json.loads((tmp_path / "state" / "run.json").read_bytes())["health"] is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert "health and metrics are not served" in (tmp_path / "stderr").read_text()


TWO_PHASE = "version: 1\ndefault: allow\nrules:\n  - {id: pay, action: two_phase, tools: [pay]}\n"


def test_a_proxy_whose_two_phase_rules_have_no_store_is_not_ready(tmp_path: Path) -> None:
    flags = ["--database-url", f"postgresql://u@127.0.0.1:{free_port()}/none"]
    with start_interlock(tmp_path, policy=TWO_PHASE, flags=flags) as interlock:
        wait_until(lambda: health(interlock)[0] == 503)
        wait_until(lambda: "two_phase" in json.loads(health(interlock)[1])["not_ready"])
        assert "cannot be used" in json.loads(health(interlock)[1])["not_ready"]["two_phase"]


FIRST_START = """
import os, sys
from pathlib import Path
from proxy.config import Settings
from proxy.redact import hyperscan_db
from proxy.runtime.supervisor import Supervisor
compile_all, main = hyperscan_db.compile_all, os.getpid()
def told(*patterns):
    print("main" if os.getpid() == main else "other", flush=True)
    return compile_all(*patterns)
hyperscan_db.compile_all = told
state, policy = map(Path, sys.argv[1:])
Supervisor(Settings(state_dir=state, policy=policy, listen="127.0.0.1:0", console_listen="off", health_listen="off"))
"""


def test_what_a_first_start_compiles_is_compiled_in_a_process_that_ends(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndefault: allow\n")
    words = [sys.executable, "-c", FIRST_START, str(tmp_path / "state"), str(policy)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"other"}


def test_a_policy_that_a_first_start_cannot_load_is_told_once(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndefault: perhaps\n")
    words = [sys.executable, "-c", FIRST_START, str(tmp_path / "state"), str(policy)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert done.stderr.count("perhaps") == 1, done.stderr


def test_a_supervisor_that_is_ready_holds_no_pages_of_what_compiled_and_loaded_patterns(two: Interlock) -> None:
    smaps = Path(f"/proc/{two.run['pid']}/smaps").read_text()
    held = re.findall(r" r-xp .*_hs_ext.*\n(?:[A-Z].*\n)*?Rss: +(\d+) kB", smaps)
    assert held == ["0"]
