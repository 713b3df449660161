"""The note of a running proxy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from proxy.system import run_file


def running() -> run_file.RunningProxy:
    return run_file.RunningProxy(os.getpid(), "127.0.0.1:8080", "regular", "ca.pem", "p.yaml", "v", 1.0)


def test_a_note_is_read_back_while_its_process_lives(tmp_path: Path) -> None:
    assert run_file.read(tmp_path) is None
    run_file.write(tmp_path, running())
    assert run_file.read(tmp_path) == running()
    run_file.remove(tmp_path)
    assert run_file.read(tmp_path) is None
    run_file.remove(tmp_path)


def test_the_console_is_that_of_the_proxy_that_runs(tmp_path: Path) -> None:
    assert run_file.console_url(tmp_path) is None
    run_file.write(tmp_path, running())
    assert run_file.console_url(tmp_path) is None
    run_file.write(tmp_path, replace(running(), console="http://127.0.0.1:8090"))
    assert run_file.console_url(tmp_path) == "http://127.0.0.1:8090"


def test_a_note_of_before_there_were_operators_is_read_too(tmp_path: Path) -> None:
    old = {name: value for name, value in asdict(running()).items() if not name.startswith("operator_")}
    (tmp_path / "run.json").write_text(json.dumps(old))
    assert run_file.read(tmp_path) == running()


def test_the_note_of_a_process_that_is_gone_says_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    run_file.write(tmp_path, replace(running(), pid=gone.pid))
    assert run_file.read(tmp_path) is None


def test_a_proxy_that_could_not_start_leaves_the_running_ones_note(tmp_path: Path) -> None:
    other = replace(running(), pid=os.getppid())
    run_file.write(tmp_path, other)
    run_file.remove(tmp_path)
    assert run_file.read(tmp_path) == other


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"pid": 1}', json.dumps({**asdict(running()), "pid": 2**80}).encode(), b"\xff"],
)
def test_a_note_that_cannot_be_read_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(content)
    assert run_file.read(tmp_path) is None


def test_clearing_takes_away_whatever_note_there_is(tmp_path: Path) -> None:
    run_file.clear(tmp_path)
    (tmp_path / "run.json").write_text("left by a proxy that was killed")
    run_file.clear(tmp_path)
    assert not (tmp_path / "run.json").exists()
