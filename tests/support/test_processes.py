"""What a zygote forks is what `python -m` starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.harness import environment
from tests.support.processes import PLAIN, ForkedProcess, Process, module_command, run_module, start_module

PROBE = "tests.support.process_probe"
LIMIT = 20.0


@pytest.fixture(params=["plain", "forked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either way to start a process; what is told of one holds for the other."""
    if request.param == "plain":
        monkeypatch.setenv(PLAIN, "1")
    else:
        monkeypatch.delenv(PLAIN, raising=False)
    return str(request.param)


@pytest.fixture
def waiting(way: str) -> Iterator[Process]:
    """A process that waits for what comes."""
    with start_module(PROBE, "wait", env=environment(), stdout=subprocess.PIPE) as process:
        assert isinstance(process, ForkedProcess) == (way == "forked")
        assert process.stdout
        assert process.stdout.readline() == b'"waiting"\n'
        yield process
        process.kill()


@pytest.mark.parametrize("extra", [{}, {"INTERLOCK_X": "ä", "PYTHONPATH": "/a:/b"}], ids=["as it is", "with more"])
def test_a_forked_process_finds_what_a_plain_one_finds(
    extra: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = extra | {"PYTHONPATH": os.pathsep.join(filter(None, [extra.get("PYTHONPATH"), str(processes.REPOSITORY)]))}
    monkeypatch.delenv(PLAIN, raising=False)
    saw = []
    for variable in ("", "1"):
        monkeypatch.setenv(PLAIN, variable)
        done = run_module(PROBE, "found", "-m", "a b", env=environment(extra | {PLAIN: ""}), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        # A folder that is on the path already is not put there again by an editable install; order is what counts.
        saw.append(found | {"path": list(dict.fromkeys(found["path"]))})
    assert saw[0] == saw[1]
    assert saw[0]["open files"] == [0, 1, 2]
    assert saw[0]["argv"][1:] == ["found", "-m", "a b"]


@pytest.mark.parametrize(("argument", "code"), [("0", 0), ("3", 3), ("null", 0), ('"why"', 1)])
def test_exit_codes_are_the_programs(argument: str, code: int, way: str) -> None:
    done = run_module(PROBE, "exit", argument, env=environment())
    assert (done.returncode, done.stderr) == (code, "why\n" if code == 1 else "")


def test_an_error_is_told_and_is_exit_code_1(way: str) -> None:
    done = run_module(PROBE, "raise", "so it is", env=environment())
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: so it is\n")


def test_a_module_that_is_not_there_is_exit_code_1(way: str) -> None:
    done = run_module("tests.no_such_thing", env=environment())
    assert done.returncode == 1
    assert "No module named tests.no_such_thing" in done.stderr


def test_streams_are_carried_and_what_is_for_the_end_is_done(way: str, tmp_path: Path) -> None:
    with (tmp_path / "err").open("wb") as err:
        process = start_module(
            PROBE, "echo", env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err
        )
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"x" * 300)
        process.stdin.close()
        assert process.stdout.read() == b"x" * 300
        assert process.wait(LIMIT) == 0
    assert (tmp_path / "err").read_text() == "at exit\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_is_the_processs_and_its_number_is_told(number: signal.Signals, waiting: Process) -> None:
    assert waiting.poll() is None
    assert waiting.returncode is None
    os.kill(waiting.pid, 0)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.01)
    waiting.send_signal(number)
    assert waiting.wait(LIMIT) == waiting.poll() == waiting.returncode == -number
    waiting.terminate()  # nobody is there any more, and that is no error


def test_a_session_of_its_own_is_had_on_request(way: str) -> None:
    for new_session in (False, True):
        with start_module(
            PROBE, "found", env=environment(), stdout=subprocess.PIPE, new_session=new_session
        ) as process:
            assert process.stdout
            assert json.load(process.stdout)["own session"] is new_session


def test_no_two_have_the_same_randomness(way: str) -> None:
    seen = [run_module(PROBE, "random", env=environment()).stdout for _ in range(2)]
    first, second = map(json.loads, seen)
    assert not {*first} & {*second}


def test_who_takes_too_long_is_killed(way: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_module(PROBE, "wait", env=environment(), timeout=0.2)


def test_what_the_interpreter_reads_at_its_start_is_not_left_to_a_zygote() -> None:
    run_module(PROBE, "exit", "0", env=environment())
    done = run_module(PROBE, "found", env=environment({"PYTHONWARNINGS": "error"}))
    assert json.loads(done.stdout)["warnings"] == ["error"]


def start_command(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        module_command(PROBE, *arguments, env=environment()),
        cwd=processes.REPOSITORY,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize(("argument", "code"), [("0", 0), ("3", 3)])
def test_a_command_ends_as_its_process_does(argument: str, code: int, way: str) -> None:
    with start_command("exit", argument) as process:
        assert process.wait(LIMIT) == code


def test_a_command_carries_streams(way: str) -> None:
    with start_command("echo") as process:
        assert process.communicate(b"x" * 300_000, LIMIT)[0] == b"x" * 300_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_a_command_ends_its_process_by_it(number: signal.Signals, way: str) -> None:
    with start_command("wait") as process:
        assert process.stdout
        assert process.stdout.readline() == b'"waiting"\n'
        process.send_signal(number)
        assert process.wait(LIMIT) == -number
        assert process.stdout.read() == b""  # nobody holds it any more


OWNER = """\
import os, signal, subprocess, sys
from tests.support.harness import environment
from tests.support.processes import start_module
process = start_module("tests.support.process_probe", "wait", env=environment(), stdout=subprocess.PIPE)
print(process.pid, flush=True)
process.stdout.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_when_the_tests_are_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWNER], cwd=processes.REPOSITORY, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + LIMIT
    while Path(f"/proc/{int(done.stdout)}").exists():
        assert time.monotonic() < deadline, "it outlived its owner"
        time.sleep(0.01)


def test_a_zygote_that_cannot_start_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLAIN, raising=False)
    monkeypatch.setattr(processes, "_zygotes", {"interlock": processes.Zygote("nonsense", environment())})
    with pytest.raises(AssertionError) as raised:
        start_module(PROBE, "found", env=environment())
    told = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    assert any("KeyError: 'nonsense'" in each for each in told)
