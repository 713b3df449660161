"""What a server uses, and when that is too much."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.probe.rulebook import rulebook
from proxy.probe.usage import MAX_MEMORY, MAX_STARTED, MAX_WRITTEN, Usage, judge_call, judge_usage, usage

WORK = "print(sum(number * number for number in range(3_000_000)) and len(bytearray(200 << 20)), flush=True); input()"


def test_what_a_process_writes_is_seen(tmp_path: Path) -> None:
    before = usage(os.getpid())
    code = "import sys; open(sys.argv[1], 'wb').write(bytes(3 << 20)); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "file")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdin
        child.stdout.readline()
        after = usage(os.getpid())
        child.stdin.close()
    assert after.written - before.written >= 3 << 20


def test_processor_time_and_memory_of_what_a_process_started_are_seen() -> None:
    before = usage(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdin
        child.stdout.readline()
        after = usage(os.getpid())
        child.stdin.close()
    assert after.cpu > before.cpu
    assert after.busiest(before) > 0
    assert after.memory >= 200 << 20


@pytest.mark.parametrize(
    ("after", "timed_out", "found"),
    [
        (Usage(5.0, MAX_MEMORY), False, f"{MAX_MEMORY >> 20} MB of memory"),
        (Usage(9.0, 0), True, "8 s of processor time, and no answer"),
        (Usage(9.0, 0), False, None),
        (Usage(2.0, 0), True, None),  # it waits
        (Usage(8.0, 0), True, None),
        (Usage(3.0, 0, {2: 9.0}), True, "2 s of processor time, and no answer"),  # others had the processors
        (Usage(3.0, 0, {1: 9.0}), True, None),  # most of that was before
        (Usage(3.0, 0, {2: 3.0, 3: 3.0, 4: 3.0}), True, None),  # each for a while
        (Usage(1.0, 0, {2: 9.0}), True, None),  # it did nothing
        (Usage(1.0, 0, written=MAX_WRITTEN), False, f"{MAX_WRITTEN >> 20} MB written"),
    ],
)
def test_a_call_uses_up_memory_or_time(after: Usage, timed_out: bool, found: str | None) -> None:
    assert judge_call(Usage(1.0, 0, {1: 5.0}), after, 10.0, timed_out=timed_out) == found


def test_memory_is_blamed_on_the_call_that_took_it() -> None:
    assert judge_call(Usage(1.0, MAX_MEMORY), Usage(1.0, MAX_MEMORY), 10.0, timed_out=False) is None


def test_threads_and_files_are_found_by_tool() -> None:
    found = judge_usage({}, {"a": MAX_STARTED, "b": 3}, {"c": "all open files (openat: EMFILE)"}, rulebook())
    assert [(each.tool, each.rule) for each in found] == [("a", "uses-up-machine"), ("c", "uses-up-machine")]
