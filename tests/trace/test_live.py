"""Servers under real strace, behind `interlock run`: what is recorded of what they do."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.stdio.test_runner import INITIALIZE, is_alive, wait_until_gone
from tests.support.harness import REPOSITORY, seed_cache
from tests.support.stdio_harness import Run, run_command, start_run
from tests.trace.recordings import AT_ONCE, MODES, TRUTH

BUSY = REPOSITORY / "tests" / "servers" / "busy.py"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
# A server whose one tool runs what it is given.
OBEDIENT = """
import json, os, socket, subprocess, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/call":
        exec(message["params"]["arguments"]["code"])
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}), flush=True)
"""
ALLOW = "version: 1\ndefault: allow\nrules: []\n"


def busy(mode: str, folder: Path) -> list[str]:
    return [sys.executable, "-I", str(BUSY), mode, str(folder)]


def obedient() -> list[str]:
    return [sys.executable, "-I", "-c", OBEDIENT]


def observed(run: Run) -> list[dict[str, Any]]:
    return [event for event in run.events() if event["kind"] == "observed"]


def entries(run: Run, call_id: str | None = None) -> list[dict[str, Any]]:
    pages = [event for event in observed(run) if event.get("call_id") == call_id]
    return [entry for page in pages for entry in page["detail"].get("observations", [])]


def call_ids(run: Run) -> dict[Any, str]:
    return {event["jsonrpc_id"]: event["call_id"] for event in run.events() if event["kind"] == "decided"}


def do(tmp_path: Path, *codes: str, **options: Any) -> Run:
    """Run pieces of code in calls of the obedient server, one by one."""
    with start_run(tmp_path, obedient(), "--trace", "require", policy=ALLOW, **options) as run:
        run.ask("initialize", 0, **INITIALIZE)
        for number, code in enumerate(codes, 1):
            run.call("run", number, code=code)
        assert run.end() == 0
    return run


def tool_call(message_id: int, code: str) -> dict[str, Any]:
    params = {"name": "run", "arguments": {"code": code}}
    return {"jsonrpc": "2.0", "id": message_id, "method": "tools/call", "params": params}


@pytest.mark.parametrize("mode", MODES)
def test_calls_one_by_one_have_what_they_did(mode: str, tmp_path: Path) -> None:
    with start_run(tmp_path / "run", busy(mode, tmp_path), "--trace", "require", policy=ALLOW) as run:
        run.ask("initialize", 0, **INITIALIZE)
        for number in range(1, 6):
            run.call("work", number, n=number)
        assert run.end() == 0
    ids = call_ids(run)
    told = [
        (event.get("call_id"), ids[int(found[1])])
        for event in observed(run)
        for entry in event["detail"].get("observations", [])
        if entry["capability"] != "proc.exec" and (found := TRUTH.search(entry["path"]))
    ]
    assert len(told) >= 30
    assert [pair for pair in told if pair[0] != pair[1]] == []


@pytest.mark.parametrize("mode", MODES)
def test_calls_at_once_have_it_among_their_candidates(mode: str, tmp_path: Path) -> None:
    with start_run(tmp_path / "run", busy(mode, tmp_path), "--trace", "require", policy=ALLOW) as run:
        run.ask("initialize", 0, **INITIALIZE)
        for number in range(1, AT_ONCE + 1):
            params = {"name": "work", "arguments": {"n": number}}
            run.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        for _ in range(AT_ONCE):
            assert run.receive()
        assert run.end() == 0
    ids = call_ids(run)
    for event in observed(run):
        for entry in event["detail"].get("observations", []):
            found = TRUTH.search(entry["path"]) if entry["capability"] != "proc.exec" else None
            if found:
                assert ids[int(found[1])] in [*entry.get("candidates", []), event.get("call_id")]


def test_files_programs_and_peers_are_recorded(tmp_path: Path) -> None:
    run = do(
        tmp_path,
        f"open({str(tmp_path / 'new')!r}, 'w').write('x'); os.unlink({str(tmp_path / 'new')!r})",
        "subprocess.run(['true', 'word'])",
        "s = socket.socket(); s.connect_ex(('127.0.0.1', 9)); s.close()",
        "s = socket.socket(socket.AF_UNIX); s.connect_ex('\\0nobody'); s.close()",
    )
    ids = call_ids(run)
    done = [[(entry["capability"], entry["action"]) for entry in entries(run, ids[number])] for number in range(1, 5)]
    assert ("fs.write", "truncate") in done[0]
    assert ("fs.delete", "unlink") in done[0]
    executed = [entry for entry in entries(run, ids[2]) if entry["capability"] == "proc.exec"]
    assert [entry["argv"] for entry in executed] == [["true", "word"]]
    assert [entry["peer"] for entry in entries(run, ids[3])] == ["127.0.0.1:9"]
    assert [entry["path"] for entry in entries(run, ids[4])] == ["@nobody"]
    assert [event["tool"] for event in observed(run) if event.get("call_id")] == ["run"] * 4


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_the_time_zone_is_the_servers_own_and_times_are_right(zone: str | None, tmp_path: Path) -> None:
    # strace has another, so that it needs not look for the machine's at each line.
    note = f"open({str(tmp_path / 'note')!r}, 'w').write"
    tracer = "open('/proc/self/status').read().split('TracerPid:')[1].split()[0]"
    own = f"'TZ=UTC0' in open('/proc/' + {tracer} + '/environ').read().split(chr(0))"
    before = time.time()
    run = do(tmp_path, f"{note}(repr((os.environ.get('TZ'), {own})))", env={"TZ": zone} if zone else None)
    assert (tmp_path / "note").read_text() == repr((zone, True))
    (written,) = [entry for entry in entries(run, call_ids(run)[1]) if entry.get("path", "").endswith("/note")]
    assert before <= written["time"] <= time.time()


def test_nothing_of_the_pipe_is_left_on_disk(tmp_path: Path) -> None:
    do(tmp_path / "run", "pass", env={"TMPDIR": str(tmp_path)})
    assert [path for path in tmp_path.iterdir() if path.name.startswith("interlock-trace-")] == []


def test_a_run_that_is_refused_before_it_starts_leaves_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "run" / "state").mkdir(parents=True)
    (tmp_path / "run" / "state" / "log").write_text("no folder")
    with start_run(tmp_path / "run", ["true"], "--trace", "require", env={"TMPDIR": str(tmp_path)}) as run:
        assert run.end() != 0
    assert [path for path in tmp_path.iterdir() if path.name.startswith("interlock-trace-")] == []


def test_start_up_is_told_apart(tmp_path: Path) -> None:
    run = do(tmp_path)
    (event, *_) = observed(run)
    assert event["detail"]["phase"] == "startup"
    assert event["detail"]["observations"][0]["capability"] == "proc.exec"
    assert event.get("call_id") is None


def test_secrets_in_system_calls_are_masked(tmp_path: Path) -> None:
    run = do(tmp_path, f"subprocess.run(['true', '--token={SECRET}']); open('/tmp/{SECRET}', 'a').close()")
    assert entries(run, call_ids(run)[1])
    assert SECRET not in json.dumps(run.events())


def test_a_storm_is_counted_in_few_events(tmp_path: Path) -> None:
    run = do(tmp_path, f"for n in range(3000): open(f'{tmp_path}/{{n}}', 'w').close()")
    pages = [each["detail"] for each in observed(run) if each.get("call_id")]
    assert len(pages) <= 3  # one, but where the machine takes longer than a page stays open
    assert all(len(page["observations"]) <= 80 for page in pages)
    written = [entry for page in pages for entry in page["observations"] if entry["capability"] == "fs.write"]
    assert len(written) + sum(page["more"]["fs.write"] for page in pages if "more" in page) == 3000


def test_the_server_holds_nothing_of_the_trace(tmp_path: Path) -> None:
    listing = tmp_path / "fds"
    run = do(
        tmp_path / "run",
        f"open({str(listing)!r}, 'w').write(repr([os.readlink(f'/proc/self/fd/{{n}}') for n in (0, 1, 2)]"
        " + [n for n in os.listdir('/proc/self/fd')]))",
    )
    held = json.loads(listing.read_text().replace("'", '"'))
    assert len(held) <= 3 + 5
    assert "interlock-trace" not in json.dumps(held)
    assert run.events()


def test_io_uring_is_not_to_be_had(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    code = f"""
import ctypes
result = ctypes.CDLL(None, use_errno=True).syscall(425, 4, 0)
open({str(answer)!r}, "w").write(str((result, ctypes.get_errno())))
"""
    do(tmp_path / "run", code)
    assert answer.read_text() == str((-1, errno.ENOSYS))


KILL_TRACER = """
import time
os.kill(int(open("/proc/self/status").read().split("TracerPid:")[1].split()[0]), 9)
"""


def test_a_server_that_kills_its_tracer_is_ended(tmp_path: Path) -> None:
    with start_run(tmp_path, obedient(), "--trace", "require", policy=ALLOW) as run:
        run.ask("initialize", 0, **INITIALIZE)
        run.send(tool_call(1, KILL_TRACER + "time.sleep(60)"))
        assert run.wait() == 128 + signal.SIGKILL
    assert {"phase": "end", "tracer_gone": True} in [event["detail"] for event in observed(run)]


HANDS = """
import ctypes, signal, time
tracer = int(open("/proc/self/status").read().split("TracerPid:")[1].split()[0])
held = next(n for n in os.listdir(f"/proc/{tracer}/fd") if "interlock-trace" in os.readlink(f"/proc/{tracer}/fd/{n}"))
"""
TAMPERING = {
    "os.kill(tracer, signal.SIGSTOP)": "strace is stopped",
    "ctypes.CDLL(None).ptrace(0x4206, tracer, 0, 0)": "ptrace PTRACE_SEIZE",
    "os.open(f'/proc/{tracer}/fd/{held}', os.O_RDONLY | os.O_NONBLOCK)": "another process opened the trace pipe",
    "os.open(f'/proc/{tracer}/mem', os.O_RDWR)": "open /proc/",
    "signal.pidfd_send_signal(os.pidfd_open(tracer), signal.SIGCONT)": "kill ",
    "os.rename(STATE + '/cache', STATE + '/gone')": "rename ",
}


@pytest.mark.parametrize("code", TAMPERING)
def test_a_server_that_goes_for_its_tracer_is_ended_and_that_is_told(code: str, tmp_path: Path) -> None:
    with start_run(tmp_path, obedient(), "--trace", "auto", policy=ALLOW) as run:
        run.ask("initialize", 0, **INITIALIZE)
        run.send(tool_call(1, f"STATE = {str(run.state_dir)!r}{HANDS}{code}\ntime.sleep(60)"))
        assert run.wait() == 128 + signal.SIGKILL
    (told,) = [event for event in observed(run) if "tampering" in event["detail"]]
    assert told["detail"]["tampering"].startswith(TAMPERING[code])
    assert told["call_id"] == call_ids(run)[1]


LOOKS = """
import os
reaper = os.getppid()
runner = int(open(f"/proc/{reaper}/stat").read().rpartition(")")[2].split()[1])
for pid in (reaper, runner):
    try:
        print(os.readlink(f"/proc/{pid}/fd/2"), flush=True)
    except PermissionError:
        os.write(2, b"refused\\n")
"""


def test_a_server_can_look_into_neither_its_reaper_nor_the_runner(tmp_path: Path) -> None:
    """Root may look into everything, so it goes without that right here."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(ALLOW)
    seed_cache(tmp_path / "state")
    command = run_command(tmp_path / "state", policy, [sys.executable, "-I", "-c", LOOKS], "--trace", "off")
    dropped = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*dropped, *command], input=b"", capture_output=True, timeout=60, check=False)
    assert done.stderr.decode() == "refused\nrefused\n"


def test_without_the_tracer_a_servers_calls_fail(tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    with start_run(tmp_path / "run", obedient(), "--trace", "require", policy=ALLOW) as run:
        run.ask("initialize", 0, **INITIALIZE)
        run.send(tool_call(1, f"{KILL_TRACER}time.sleep(0.2)\nopen({str(reached)!r}, 'w').write('x')"))
        assert run.wait() != 0
    assert not reached.exists()


def test_killing_the_runner_leaves_no_tracer(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"open({str(pids)!r}, 'w').write(open('/proc/self/status').read())"
    with start_run(tmp_path / "run", obedient(), "--trace", "require", policy=ALLOW) as run:
        run.ask("initialize", 0, **INITIALIZE)
        run.call("run", 1, code=code)
        status = pids.read_text()
        server, tracer = (
            int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1]) for name in ("Pid", "TracerPid")
        )  # type: ignore[index]
        assert is_alive(tracer)
        run.process.send_signal(signal.SIGKILL)
        run.wait()
        wait_until_gone(server, tracer)


@pytest.mark.parametrize(("content", "code"), [("no script\n", 126), (None, 127)])
def test_a_server_that_cannot_start_is_told_as_that(content: str | None, code: int, tmp_path: Path) -> None:
    server = tmp_path / "server"
    if content is not None:
        server.write_text(content)
        server.chmod(0o755)
    with start_run(tmp_path / "run", [str(server)], "--trace", "require") as run:
        assert run.end() == code
    assert "cannot start" in run.errors()
    assert "ptrace" not in run.errors()


def test_a_server_that_crashes_is_no_problem_of_tracing(tmp_path: Path) -> None:
    with start_run(tmp_path, ["sh", "-c", "echo broken >&2; exit 3"], "--trace", "require") as run:
        assert run.end() == 3
    assert run.errors().strip() == "broken"


@pytest.fixture
def refused(tmp_path: Path) -> dict[str, str]:
    """An environment where ptrace is refused."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "strace").write_text(
        "#!/bin/sh\necho 'strace: ptrace(PTRACE_SEIZE): Operation not permitted' >&2\nexit 1\n"
    )
    (folder / "strace").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_where_ptrace_is_refused_a_server_runs_and_that_is_said(tmp_path: Path, refused: dict[str, str]) -> None:
    with start_run(tmp_path / "run", obedient(), policy=ALLOW, env=refused) as run:
        run.ask("initialize", 0, **INITIALIZE)
        assert run.end() == 0
    (line,) = [line for line in run.errors().splitlines() if "untraced" in line]
    assert "SYS_PTRACE" in line
    assert observed(run) == []


def test_where_tracing_is_required_and_refused_nothing_runs(tmp_path: Path, refused: dict[str, str]) -> None:
    mark = tmp_path / "ran"
    with start_run(tmp_path / "run", ["touch", str(mark)], env={**refused, "INTERLOCK_TRACE": "require"}) as run:
        assert run.end() == 1
    assert "SYS_PTRACE" in run.errors()
    assert not mark.exists()


def test_tracing_can_be_turned_off(tmp_path: Path, refused: dict[str, str]) -> None:
    with start_run(tmp_path / "run", ["true"], "--trace", "off", env=refused) as run:
        assert run.end() == 0
    assert run.errors() == ""
    assert observed(run) == []
