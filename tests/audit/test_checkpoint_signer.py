"""Checkpoints are made while a log grows and at its end, and reach where they are to go."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.audit import checkpoint_signer as module
from proxy.audit.checkpoint_signer import CheckpointSigner, Watch
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.core.event import Head
from tests.support.timeouts import PATIENCE


def heads(file: Path) -> list[int]:
    return [json.loads(line)["seq"] for line in file.read_text().splitlines()] if file.exists() else []


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Growing:
    """A log that has come to some event."""

    def __init__(self) -> None:
        self.seq = 0

    def __call__(self) -> Head:
        return Head("w", self.seq, f"{self.seq:064x}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / CHECKPOINT_FILE


def test_the_start_and_the_end_are_certified(tmp_path: Path, file: Path) -> None:
    log = Growing()
    watch = Watch(CheckpointSigner(tmp_path, file), log, every_seconds=3600)
    until(lambda: heads(file) == [0])
    log.seq = 5
    watch.close()
    assert heads(file) == [0, 5]


def test_an_end_that_was_certified_is_not_certified_again(tmp_path: Path, file: Path) -> None:
    watch = Watch(CheckpointSigner(tmp_path, file), Growing(), every_seconds=3600)
    watch.close()
    assert heads(file) == [0]


@pytest.mark.parametrize(("grown", "every"), [(1, 0.05), (1000, 3600.0)])
def test_time_and_number_each_bring_a_checkpoint(
    grown: int, every: float, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    log = Growing()
    watch = Watch(CheckpointSigner(tmp_path, file), log, every_seconds=every)
    until(lambda: heads(file) == [0])
    log.seq = grown
    until(lambda: heads(file) == [0, grown])
    watch.close()
    assert heads(file) == [0, grown]


def command(tmp_path: Path) -> list[str]:
    """A command that keeps what it is given, while it is allowed to."""
    script = (
        "import sys, pathlib; folder = pathlib.Path(sys.argv[1]); "
        "sys.exit('no') if (folder / 'down').exists() else (folder / 'kept').open('a').write(sys.stdin.read())"
    )
    return [sys.executable, "-c", script, str(tmp_path)]


def test_a_command_is_given_each_checkpoint_and_what_it_missed(tmp_path: Path, file: Path) -> None:
    signer, kept = CheckpointSigner(tmp_path, file, command(tmp_path)), tmp_path / "kept"
    assert signer.sign("head", [Head("w", 1, "a" * 64)])
    (tmp_path / "down").touch()
    assert not signer.sign("head", [Head("w", 2, "b" * 64)])
    assert signer.problem is not None
    (tmp_path / "down").unlink()
    assert signer.sign("head", [Head("w", 3, "c" * 64)])
    assert signer.problem is None
    assert heads(kept) == [1, 2, 3]
    assert heads(file) == [1, 2, 3], "what the file has is not written again"


@pytest.mark.parametrize("words", [["/nowhere/at-all"], [sys.executable, "-c", "import time; time.sleep(60)"]])
def test_a_command_that_fails_is_told_and_harms_nothing(
    words: list[str], tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMAND_SECONDS", 0.2)
    signer = CheckpointSigner(tmp_path, file, words)
    assert not signer.sign("head", [Head("w", 1, "a" * 64)])
    assert signer.problem


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNSENT", 3)
    (tmp_path / "file").write_text("")
    signer = CheckpointSigner(tmp_path, tmp_path / "file" / "below")
    for seq in range(6):
        assert not signer.sign("head", [Head("w", seq, "a" * 64)])
    assert len(signer._unwritten) == 3


def test_a_command_is_given_what_the_disk_does_not_take(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    signer = CheckpointSigner(tmp_path, tmp_path / "file" / "below", command(tmp_path))
    assert not signer.sign("head", [Head("w", 1, "a" * 64)])
    assert heads(tmp_path / "kept") == [1]


def test_several_threads_may_certify(tmp_path: Path, file: Path) -> None:
    signer = CheckpointSigner(tmp_path, file)
    threads = [
        threading.Thread(target=lambda seq=seq: signer.sign("head", [Head("w", seq, "a" * 64)])) for seq in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heads(file)) == list(range(1, 9))
