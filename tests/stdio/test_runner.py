"""`interlock run` as a process: what passes, what ends, and what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from proxy.gate.behaviour import Behaviour
from proxy.policy.observed import CompiledObserved, ObservedRule
from proxy.stdio.pipes import DescriptorReader, DescriptorWriter
from proxy.stdio.runner import StdioRunner
from proxy.stdio.session import Session
from proxy.trace.live_trace import LiveTrace
from proxy.trace.tracer import TracePipe
from tests.support.gate_fixture import CONTEXT, World
from tests.support.harness import DENY_ALL_DANGER
from tests.support.stdio_harness import recorder, start_run
from tests.support.timeouts import PATIENCE

MASKING = """\
version: 1
default: allow
rules:
  - {id: scrub, action: redact, tools: ["*"], on: [arguments, result], detectors: [secrets]}
"""
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
# As a server runs by itself, so it runs under strace.
BOTH = pytest.mark.parametrize("trace", ["off", "require"])
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "got.log"


def got(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.01)


def numbers(file: Path) -> list[int]:
    deadline = time.monotonic() + PATIENCE
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(number) for number in file.read_text().split()]


def test_messages_pass_in_their_order_and_their_answers_come_back(tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log)) as run:
        assert run.ask("initialize", 1, **INITIALIZE)["result"]["protocolVersion"] == "2025-11-25"
        run.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for number in range(2, 30):
            run.send({"jsonrpc": "2.0", "id": number, "method": "tools/call",
                      "params": {"name": "echo", "arguments": {"text": f"ä€😀\u2028 {number}"}}})  # fmt: skip
            run.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        for number in range(2, 30):
            assert run.receive()["result"]["structuredContent"]["text"] == f"ä€😀\u2028 {number}"
        assert run.end() == 0
    calls = got(log)
    assert [message["method"] for message in calls] == [
        "initialize", "notifications/initialized", *["tools/call", "notifications/cancelled"] * 28,
    ]  # fmt: skip
    assert [m["params"]["requestId"] for m in calls if "cancelled" in m["method"]] == list(range(2, 30))


def test_a_denied_call_is_answered_and_never_reaches_the_server(tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log), "--server-name", "files", "--agent", "bot") as run:
        refused = run.call("danger", "x")
        assert refused["result"]["isError"] is True
        denial = refused["result"]["_meta"]["mcp-interlock/denial"]
        assert denial["rule"] == "no-danger"
        assert run.call("echo", 2, text="hi")["result"]["structuredContent"] == {"text": "hi"}
        assert {tool["name"] for tool in run.ask("tools/list", 3)["result"]["tools"]} == {
            "echo",
            "say",
            "secret",
            "crash",
        }
        run.end()
        events = run.events()
    assert b"danger" not in log.read_bytes()
    (decided,) = [event for event in events if event.get("call_id") == denial["audit_id"]]
    assert (decided["server"], decided["agent"], decided["transport"]) == ("files", "bot", "stdio")
    assert (decided["decision"], decided["reason"]) == ("deny", "policy_denied")
    assert len({event["session"] for event in events}) == 1
    assert [
        e["outcome"] for e in events if e["kind"] == "completed" and e["tool" if "tool" in e else "method"] == "echo"
    ] == ["done"]


def test_the_home_of_who_runs_the_server_is_known(tmp_path: Path, log: Path) -> None:
    policy = (
        "version: 1\ndefault: allow\nrules:\n"
        "  - {id: homes, action: deny, when: {arg: text, path_under: /root/private}}\n"
    )
    for home, refused in (("/home/me", False), ("/root", True), ("", True)):
        with start_run(tmp_path / (home.strip("/") or "none"), recorder(log), policy=policy, env={"HOME": home}) as run:
            assert run.call("echo", 1, text="~/private/x")["result"].get("isError", False) is refused, home
            run.end()


def test_secrets_are_masked_both_ways_and_beside_the_answers(tmp_path: Path, log: Path) -> None:
    beside = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": f"it is {SECRET}"}})
    with start_run(tmp_path, recorder(log), policy=MASKING) as run:
        answer = run.call("echo", 1, text=f"key {SECRET}")
        assert SECRET not in json.dumps(answer)
        halves = json.dumps({"jsonrpc": "2.0", "id": 9, "result": {"text": SECRET}})
        run.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                  "params": {"name": "say", "arguments": {"raw": "x\n"}}})  # fmt: skip
        run.answer(2)
        run.end()
    assert SECRET.encode() not in log.read_bytes()
    script = ["sh", "-c", f"read line; echo '{beside}'; echo '{halves}'; read line"]
    with start_run(tmp_path, script, policy=MASKING) as run:
        run.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}})
        first, second = run.receive(), run.receive()
        run.end()
    assert first["method"] == "notifications/message"
    assert second["id"] == 9
    assert SECRET not in json.dumps([first, second])


@BOTH
def test_the_exit_code_is_the_servers(trace: str, tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log, "--exit", "7"), "--trace", trace) as run:
        run.call("echo", 1)
        assert run.end() == 7
    with start_run(tmp_path, recorder(log), "--trace", trace) as run:
        run.send(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "crash", "arguments": {"code": 3}}}
        )
        assert run.receive() is None
        assert run.wait() == 3
        assert run.events()[-1]["outcome"] == "unknown"


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_goes_to_the_server_and_its_end_by_it_is_told(number: int, trace: str, tmp_path: Path) -> None:
    with start_run(
        tmp_path,
        ["sh", "-c", 'read line; echo \'{"jsonrpc":"2.0","id":1,"result":{}}\'; exec sleep 60'],
        "--trace",
        trace,
    ) as run:
        run.ask("ping", 1)
        run.process.send_signal(number)
        assert run.wait() == 128 + number


@BOTH
def test_a_server_that_handles_a_signal_goes_on(trace: str, tmp_path: Path) -> None:
    answer = '{"jsonrpc":"2.0","id":%d,"result":{}}'
    script = f"""
import select, signal, sys
signal.signal(signal.SIGHUP, lambda *_: print('{answer % 2}', flush=True))
sys.stdin.readline()
print('{answer % 1}', flush=True)
while not select.select([sys.stdin], [], [], 0.05)[0]:  # a signal just before a read waits until that has read
    pass
"""
    with start_run(tmp_path, [sys.executable, "-c", script], "--trace", trace) as run:
        run.ask("ping", 1)
        run.process.send_signal(signal.SIGHUP)
        assert run.answer(2)["result"] == {}
        assert run.end() == 0


@BOTH
def test_a_server_that_stays_after_its_input_ended_is_terminated(trace: str, tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log, "--stay"), "--trace", trace, env={"INTERLOCK_DRAIN_TIMEOUT": "0.2"}) as run:
        run.call("echo", 1)
        assert run.end() == 128 + signal.SIGTERM


@BOTH
def test_a_server_that_ignores_that_too_is_killed_with_all_it_started(trace: str, tmp_path: Path, log: Path) -> None:
    pids = tmp_path / "pids"
    flags = ["--stay", "--ignore-term", "--child", str(pids)]
    with start_run(tmp_path, recorder(log, *flags), "--trace", trace, env={"INTERLOCK_DRAIN_TIMEOUT": "0.2"}) as run:
        run.call("echo", 1)
        assert run.end() == 128 + signal.SIGKILL
        wait_until_gone(*numbers(pids))


@BOTH
def test_what_a_server_leaves_behind_ends_with_it(trace: str, tmp_path: Path, log: Path) -> None:
    pids = tmp_path / "pids"
    with start_run(tmp_path, recorder(log, "--child", str(pids)), "--trace", trace) as run:
        run.call("echo", 1)
        assert run.end() == 0
        wait_until_gone(*numbers(pids))


@BOTH
def test_killing_the_runner_leaves_no_process(trace: str, tmp_path: Path, log: Path) -> None:
    pids = tmp_path / "pids"
    with start_run(tmp_path, recorder(log, "--stay", "--ignore-term", "--child", str(pids)), "--trace", trace) as run:
        run.call("echo", 1)
        everything = {*numbers(pids), *children(run.process.pid)}
        assert len(everything) == 3  # the server, its child, and the reaper; strace is gone with the server
        run.process.kill()
        run.wait()
        wait_until_gone(*everything)


@BOTH
def test_killing_the_reaper_leaves_no_process(trace: str, tmp_path: Path, log: Path) -> None:
    pids = tmp_path / "pids"
    with start_run(tmp_path, recorder(log, "--stay", "--child", str(pids)), "--trace", trace) as run:
        run.call("echo", 1)
        (reaper,) = children(run.process.pid)
        os.kill(reaper, signal.SIGKILL)
        assert run.wait() == 128 + signal.SIGKILL
        wait_until_gone(*numbers(pids))


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def test_a_client_that_reads_no_more_is_a_client_that_is_gone(tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log, "--stay"), env={"INTERLOCK_DRAIN_TIMEOUT": "0.2"}) as run:
        run.call("echo", 1)
        assert run.process.stdout
        run.process.stdout.close()
        run.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        assert run.wait() == 128 + signal.SIGTERM


@BOTH
def test_a_server_that_closes_its_output_is_ended(trace: str, tmp_path: Path) -> None:
    with start_run(
        tmp_path, ["sh", "-c", "exec >&-; exec sleep 60"], "--trace", trace, env={"INTERLOCK_DRAIN_TIMEOUT": "0.2"}
    ) as run:
        assert run.wait() == 128 + signal.SIGTERM


def test_stderr_is_the_servers_and_stdout_holds_messages_alone(tmp_path: Path, log: Path) -> None:
    answer = '{"jsonrpc":"2.0","id":1,"result":{}}'
    script = f"echo chatter; echo to stderr >&2; read line; echo '{answer}'; echo 42; echo '\"x\"'"
    with start_run(tmp_path, ["sh", "-c", script]) as run:
        run.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert run.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert run.receive() is None
        assert run.end() == 0
        assert "to stderr" in run.errors()


def test_a_server_that_does_not_read_slows_the_client_and_not_the_way_back(tmp_path: Path) -> None:
    """A call that lingers in a full pipe keeps nothing the server says from the client."""
    script = """
import sys, time
sys.stdin.buffer.readline()
for number in range(300):
    print('{"jsonrpc":"2.0","method":"notifications/progress","params":{"n":%d}}' % number, flush=True)
sys.stdin.buffer.read()
"""
    filler = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"' + b"x" * 60_000 + b'"}}\n'
    with start_run(tmp_path, [sys.executable, "-c", script]) as run:
        run.send({"jsonrpc": "2.0", "method": "notifications/go"})
        assert [run.receive()["params"]["n"] for _ in range(300)] == list(range(300))
        for _ in range(50):
            run.send(filler)
        assert run.end() == 0


def test_a_policy_that_changes_is_followed_and_the_client_told(tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log)) as run:
        run.ask("initialize", 1, **INITIALIZE)
        run.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert "isError" not in run.call("echo", 2)["result"]
        run.policy.write_text(DENY_ALL_DANGER.replace("tools: [danger]", "tools: [echo]"))
        assert run.receive()["method"] == "notifications/tools/list_changed"
        assert run.call("echo", 3)["result"]["isError"] is True
        run.end()


def test_a_subscription_is_told_in_its_own_way(tmp_path: Path, log: Path) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    with start_run(tmp_path, recorder(log)) as run:
        run.send({"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen",
                  "params": {"_meta": meta, "notifications": {"toolsListChanged": True}}})  # fmt: skip
        assert run.receive()["method"] == "notifications/subscriptions/acknowledged"
        run.policy.write_text(DENY_ALL_DANGER + "  - {id: more, action: deny, tools: [x]}\n")
        told = run.receive()
        assert told["method"] == "notifications/tools/list_changed"
        assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}
        run.ask("ping", 2, _meta=meta)
        run.end()
        assert {e["revision"] for e in run.events() if e["kind"] == "completed"} == {"2026-07-28"}


def test_two_runs_share_a_state_folder_and_their_records_are_read_as_one(tmp_path: Path, log: Path) -> None:
    state = tmp_path / "state"
    with (
        start_run(tmp_path / "a", recorder(log), "--server-name", "a", state_dir=state) as first,
        start_run(tmp_path / "b", recorder(log), "--server-name", "b", state_dir=state) as second,
    ):
        for number in range(5):
            for run in (first, second):
                run.call("echo", number)
        assert (first.end(), second.end()) == (0, 0)
        events = [event for event in first.events() if event["kind"] == "decided"]
    assert [event["server"] for event in events] == ["a", "b"] * 5
    assert sorted(path.name for path in (state / "log").glob("*.db")) == ["run-1.db", "run-2.db"]


def test_without_a_log_the_server_gets_nothing(tmp_path: Path, log: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "log").write_text("in the way")
    with start_run(tmp_path, recorder(log)) as run:
        run.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}})
        assert run.wait() == 1
        assert "audit log" in run.errors()
    # It starts while the gate is made, and notes whatever it gets.
    assert not log.exists() or log.read_bytes() == b""


@pytest.mark.parametrize(("action", "holds"), [("withhold", True), ("deny", True), ("tell", False)])
async def test_a_trace_is_read_early_where_rules_hold_answers(action: str, holds: bool) -> None:
    rules = CompiledObserved(
        [ObservedRule.model_validate({"id": "r", "on": "observed", "action": action, "acts": ["read"]})]
    )
    world, channel = World(), TracePipe()
    watch = LiveTrace(channel, lambda *_: None)
    behaviour = Behaviour(world.gate, CONTEXT, lambda: rules, lambda _: None)
    outlet = DescriptorWriter(1)
    runner = StdioRunner(world.gate, CONTEXT, DescriptorReader(0), outlet, 9, 9, 1.0, watch=watch, behaviour=behaviour)
    assert not watch.holds_answers()
    runner._judge_acts(Session(world.gate, CONTEXT, outlet.write, outlet.write), behaviour)
    assert watch.holds_answers() is holds
    channel.close()
