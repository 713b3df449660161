from __future__ import annotations

from proxy.trace.process_tree import Process, ProcessTree
from proxy.trace.strace import Ended, Superseded, Syscall, TraceReader, Unfinished
from tests.trace.goldens import events_of

THREAD = "{flags=CLONE_VM|CLONE_THREAD}, 88"


def follow(lineage: ProcessTree, *lines: str) -> None:
    reader = TraceReader()
    for number, line in enumerate(lines):
        pid, _, rest = line.partition(" ")
        take(lineage, reader.take(f"{pid}  {number}.5 {rest}"))


def take(lineage: ProcessTree, event: object) -> None:
    if isinstance(event, Syscall) and event.name in ("clone", "clone3", "vfork", "fork"):
        lineage.started(event)
    elif isinstance(event, Unfinished):
        lineage.begins(event)
    elif isinstance(event, Ended):
        lineage.ended(event)
    elif isinstance(event, Superseded):
        lineage.superseded(event)
    else:
        lineage.process(event.pid)  # type: ignore[attr-defined]


def test_a_child_is_known_by_who_started_it() -> None:
    lineage = ProcessTree()
    follow(lineage, "1 fork() = 2", "2 vfork() = 3")
    assert lineage.ancestry(3) == (3, 2, 1)
    assert lineage.process(3) is not lineage.process(2)


def test_threads_share_their_process() -> None:
    lineage = ProcessTree()
    follow(lineage, f"1 clone3({THREAD}) = 2")
    assert lineage.process(2) is lineage.process(1)
    assert lineage.ancestry(2) == (2, 1)


def test_a_child_that_is_seen_before_its_start_returns_is_its_starters() -> None:
    lineage = ProcessTree(b"/work")
    for event in events_of("vfork_by_clone3")[:2]:
        take(lineage, event)
    child = lineage.process(3531)
    assert lineage.ancestry(3531) == (3531, 3530)
    for event in events_of("vfork_by_clone3")[2:]:
        take(lineage, event)
    assert child.parent is lineage.process(3530)


def test_a_wrong_guess_is_set_right_when_the_start_returns() -> None:
    lineage = ProcessTree()
    follow(lineage, "1 fork( <unfinished ...>", "2 fork( <unfinished ...>", "3 exit_group(0) = ?")
    child = lineage.process(3)
    assert lineage.ancestry(3)[:2] == (3, 2)
    follow(lineage, "1 fork() = 3")
    assert lineage.ancestry(3) == (3, 1)
    assert lineage.process(3) is child
    assert child.parent is lineage.process(1)


def test_a_start_that_failed_starts_nobody() -> None:
    lineage = ProcessTree()
    follow(lineage, "1 fork() = -1 EAGAIN (Resource temporarily unavailable)", "1 fork() = ?")
    assert lineage.ancestry(1) == (1,)
    assert not lineage.knows(-1)


def test_a_number_that_comes_again_is_another_process() -> None:
    lineage = ProcessTree()
    follow(lineage, "1 fork() = 2")
    first = lineage.process(2)
    follow(lineage, "2 +++ exited with 0 +++", "1 fork() = 2")
    assert lineage.process(2) is not first


def test_a_thread_that_executes_takes_the_processs_number() -> None:
    lineage = ProcessTree()
    for event in events_of("superseded"):
        take(lineage, event)
    assert not lineage.knows(3532)


def test_nameless_files_are_inherited() -> None:
    parent = Process(b"/", memory={4: b"/memfd:x"})
    child = Process(b"/", parent)
    assert child.memory_file(4) == b"/memfd:x"
    assert child.memory_file(5) is None


def test_a_path_is_made_absolute_by_names() -> None:
    process = Process(b"/work/a")
    assert process.resolve(b"../b") == b"/work/b"
    assert process.resolve(b"x", b"/etc") == b"/etc/x"
    assert process.resolve(b"//etc/./passwd") == b"/etc/passwd"
