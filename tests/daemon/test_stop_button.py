"""Limits and halts on the wire: two workers on one file, two replicas on one Postgres, and streams that are open."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proxy.admin_api.client import RemoteHalts
from proxy.identity.token_file import OperatorTokens, read_token
from tests.daemon.lines_to import Line, connect, reason_of, text_of
from tests.faults.load import wait_until
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.postgres import Postgres

POLICY = """
version: 1
default: allow
limits:
  - {id: twenty, tools: [echo], count: 20, within: 1h, per: all}
  - {id: money, tools: [pay], sum: {arg: amount, max: 100}, within: 1d, per: all}
"""
CALLERS = 64


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("quick", tmp_path_factory.mktemp("quick")) as server:
        yield server


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("python_modern", tmp_path_factory.mktemp("modern")) as server:
        yield server


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    """One proxy of two workers, on files."""
    with start_interlock(tmp_path_factory.mktemp("two"), policy=POLICY, flags=["--workers", "2"]) as running:
        yield running


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[tuple[Interlock, Interlock]]:
    """Two proxies on one Postgres."""
    with (
        postgres.lend() as url,
        start_interlock(tmp_path_factory.mktemp("first"), policy=POLICY, flags=["--database-url", url]) as first,
        start_interlock(tmp_path_factory.mktemp("second"), policy=POLICY, flags=["--database-url", url]) as second,
    ):
        yield first, second


def button(interlock: Interlock) -> RemoteHalts:
    token = read_token(OperatorTokens(interlock.state_dir).token_file)
    return RemoteHalts(Path(interlock.run["operator_socket"]), token)


def halt(interlock: Interlock, **scope: Any) -> Any:
    asked: dict[str, Any] = {"agent": None, "server": None, "tool": None, "cut": False, **scope}
    return asyncio.run(button(interlock).halt("a test says so", **asked))


def resume(interlock: Interlock, halt_id: str) -> None:
    asyncio.run(button(interlock).resume("over", [halt_id]))


def answers(lines: list[Line], tool: str, arguments: Any) -> list[Any]:
    """Make as many calls as there are lines, all at once."""
    together = threading.Barrier(len(lines))

    def call(pair: tuple[int, Line]) -> Any:
        together.wait()
        return pair[1].call(pair[0], tool, **arguments)

    try:
        with ThreadPoolExecutor(len(lines)) as pool:
            return list(pool.map(call, enumerate(lines)))
    finally:
        for line in lines:
            line.close()


def some_lines(proxies: list[Interlock], server: ServerHandle) -> list[Line]:
    return [_Fast(proxies[n % len(proxies)], f"{server.url}/mcp") for n in range(CALLERS)]


class _Fast(Line):
    """A line to whichever worker the kernel chooses."""

    def __init__(self, interlock: Interlock, url: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", interlock.port, timeout=60)
        self._url = url
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def serving(interlock: Interlock) -> list[int]:
    """Return the processes of the workers, 0 for one that does not serve yet."""
    run = json.loads((interlock.state_dir / "run.json").read_bytes())
    return [worker["pid"] if worker["serves"] else 0 for worker in run["workers"]]


def count(found: list[Any]) -> dict[str, int]:
    reasons = [reason_of(answer) or text_of(answer) for answer in found]
    return {reason: reasons.count(reason) for reason in set(reasons)}


def test_64_callers_over_two_workers_are_never_one_too_many_and_a_kill_forgets_none(
    two: Interlock, quick: ServerHandle
) -> None:
    found = answers(some_lines([two], quick), "echo", {"text": "x"})
    assert count(found) == {"done": 20, "limit_exceeded": 44}
    refused = next(each["result"] for each in found if reason_of(each))
    assert 3500 < refused["_meta"]["mcp-interlock/denial"]["retry_after"] <= 3600
    pids = two.worker_pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not {0, *pids} & set(serving(two)))
    line = Line(two, 1, f"{quick.url}/mcp")
    assert reason_of(line.call(1, "echo", text="x")) == "limit_exceeded"
    line.close()
    shown = two.cli("limits", "show", "--json", "--policy", str(two.run["policy"]))
    assert [json.loads(row)["used"] for row in shown.stdout.splitlines()] == ["20"], shown.stderr


def test_64_callers_over_two_replicas_are_never_one_too_many(
    replicas: tuple[Interlock, Interlock], quick: ServerHandle
) -> None:
    found = answers(some_lines(list(replicas), quick), "echo", {"text": "x"})
    assert count(found) == {"done": 20, "limit_exceeded": 44}
    found = answers(some_lines(list(replicas), quick), "pay", {"amount": 2.5})
    assert count(found) == {"done": 40, "limit_exceeded": 24}


def refuses(line: Line) -> bool:
    return reason_of(line.call(1, "other")) == "halted"


def test_a_halt_is_in_force_on_every_worker_and_replica_until_it_is_resumed(
    two: Interlock, replicas: tuple[Interlock, Interlock], quick: ServerHandle
) -> None:
    for lines, proxy in (
        ([Line(two, number, f"{quick.url}/mcp") for number in (1, 2)], two),
        ([Line(each, 1, f"{quick.url}/mcp") for each in replicas], replicas[0]),
    ):
        assert not any(map(refuses, lines))
        made = halt(proxy, agent="agent", tool="other")
        assert made["shared"]
        for line in lines:
            wait_until(lambda line=line: refuses(line))
        assert text_of(lines[0].call(2, "another")) == "done"
        resume(proxy, made["halt_id"])
        for line in lines:
            wait_until(lambda line=line: not refuses(line))
            line.close()
    kinds = [(e["kind"], e["detail"]["operator"]) for e in two.recorded() if e["kind"] in ("halted", "resumed")]
    assert kinds == [("halted", "operator"), ("resumed", "operator")]


def test_a_signal_and_a_file_halt_everything_and_a_restart_forgets_nothing(tmp_path: Path, quick: ServerHandle) -> None:
    with start_interlock(tmp_path, policy=POLICY) as proxy:
        line = Line(proxy, 1, f"{quick.url}/mcp")
        assert not refuses(line)
        proxy.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: refuses(line))
        plain = connect(proxy, 1)
        plain.request("GET", f"{quick.url}/x", headers={"Accept": "text/event-stream"})
        assert (response := plain.getresponse()).status == 403
        assert json.loads(response.read())["error"]["data"]["reason"] == "halted"
        plain.close()
        line.close()
    with start_interlock(tmp_path, policy=POLICY) as proxy:
        line = Line(proxy, 1, f"{quick.url}/mcp")
        assert refuses(line)
        assert proxy.cli("resume", "--all", "--reason", "over").returncode == 0
        wait_until(lambda: not refuses(line))
        (proxy.state_dir / "HALT").write_text("by hand")
        wait_until(lambda: refuses(line))
        listed = [json.loads(row) for row in proxy.cli("halts", "--json").stdout.splitlines()]
        assert [(one["origin"], one["reason"]) for one in listed] == [("file", "by hand")]
        line.close()
    (tmp_path / "state" / "HALT").unlink()
    (tmp_path / "state" / "halts.json").write_text("{broken")
    with pytest.raises(AssertionError, match="cannot be known what is halted"), start_interlock(tmp_path):
        pass


@pytest.mark.parametrize("cut", [False, True])
def test_a_call_under_way_finishes_or_is_cut(two: Interlock, modern: ServerHandle, cut: bool) -> None:
    line = _Fast(two, f"{modern.url}/mcp")
    line.headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
    meta = {
        f"io.modelcontextprotocol/{n}": v for n, v in (("protocolVersion", "2026-07-28"), ("clientCapabilities", {}))
    }
    modern.new_executions()
    with ThreadPoolExecutor(1) as pool:
        params = {"name": "slow", "arguments": {"ms": 60_000}, "_meta": meta}
        answer = pool.submit(line.ask, 1, "tools/call", params)
        wait_until(lambda: bool(modern.new_executions()))
        made = halt(two, server=f"127.0.0.1:{modern.port}", cut=cut)
        if cut:
            with pytest.raises((AssertionError, http.client.HTTPException, OSError)):
                answer.result()
            wait_until(lambda: any(e.get("outcome") == "halted" for e in two.recorded()))
        modern.wake()
        if not cut:
            assert text_of(answer.result()).startswith("slept")
    line.close()
    resume(two, made["halt_id"])
    for number in (1, 2):
        line = Line(two, number, f"{modern.url}/mcp")
        wait_until(lambda line=line: not refuses(line))
        line.close()
