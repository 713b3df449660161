from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.trace.capability import Capability, Observation
from proxy.trace.normalise import LOOKS, TRACED, Normaliser
from proxy.trace.strace import TraceReader
from tests.trace.goldens import golden_names, lines_of
from tests.trace.test_strace import LINES, damaged

type Told = tuple[str, str, str]


def observe(*lines: str, ignored: frozenset[bytes] = frozenset()) -> list[Observation]:
    reader, normaliser = TraceReader(), Normaliser(b"/work", ignored)
    return [seen for line in lines for seen in normaliser.take(reader.take(line))]


def tell(*calls: str, pid: int = 100) -> list[Told]:
    lines = [f"{pid}  1794811565.{number:06} {call}" for number, call in enumerate(calls)]
    return [(str(seen.capability), seen.action, seen.target) for seen in observe(*lines)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('openat(AT_FDCWD</work>, "a", O_RDONLY) = 3</work/a>', [("fs.read", "open", "/work/a")]),
        ('openat(AT_FDCWD</work>, "link", O_RDONLY) = 3</etc/shadow>', [("fs.read", "open", "/etc/shadow")]),
        ('open("a", O_RDONLY) = -1 EACCES (Permission denied)', [("fs.read", "open", "/work/a")]),
        (
            'openat(5</srv>, "a/../b", O_RDONLY) = -1 ENOENT (No such file or directory)',
            [("fs.read", "open", "/srv/b")],
        ),
        (
            'openat2(AT_FDCWD</work>, "a", {flags=O_RDONLY, resolve=0}, 24) = 3</work/a>',
            [("fs.read", "open", "/work/a")],
        ),
        ('openat(AT_FDCWD</work>, ".", O_RDONLY|O_DIRECTORY) = 3</work>', [("fs.read", "list", "/work")]),
        ('openat(AT_FDCWD</work>, "a", O_RDWR|O_CREAT, 0644) = 3</work/a>', [("fs.read", "open", "/work/a")]),
        ('openat(AT_FDCWD</work>, "a", O_WRONLY|O_APPEND) = 3</work/a>', []),
        ('openat(AT_FDCWD</work>, "a", O_WRONLY|O_CREAT, 0666) = 3</work/a>', [("fs.write", "create", "/work/a")]),
        ('openat(AT_FDCWD</work>, "a", O_WRONLY|O_TRUNC) = 3</work/a>', [("fs.write", "truncate", "/work/a")]),
        (
            'openat(AT_FDCWD</work>, "a", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</work/a>',
            [("fs.write", "create", "/work/a")],
        ),
        ('openat(AT_FDCWD</work>, "a", O_WRONLY) = -1 EACCES (Permission denied)', [("fs.write", "open", "/work/a")]),
        ('creat("a", 0644) = 3</work/a>', [("fs.write", "truncate", "/work/a")]),
        ('openat(AT_FDCWD</work>, "a", O_RDONLY|O_PATH) = 3</work/a>', []),
        ('openat(AT_FDCWD</work>, "/dev/null", O_RDWR) = 3</dev/null>', []),
        ('write(3</work/a>, "x", 1) = 1', [("fs.write", "write", "/work/a")]),
        ('pwrite64(3</work/a>, "x", 1, 0) = 1', [("fs.write", "write", "/work/a")]),
        ('write(1<pipe:[7]>, "x", 1) = 1', []),
        ('write(4<anon_inode:[eventfd]>, "x", 8) = 8', []),
        ('write(4</memfd:x>(deleted), "x", 1) = 1', []),
        ("ftruncate(3</work/a>, 0) = 0", [("fs.write", "ftruncate", "/work/a")]),
        ("copy_file_range(3</work/a>, NULL, 4</work/b>, NULL, 9, 0) = 9", [("fs.write", "copy_file_range", "/work/b")]),
        ("mmap(NULL, 9, PROT_READ|PROT_WRITE, MAP_SHARED, 3</work/a>, 0) = 0x7f", [("fs.write", "mmap", "/work/a")]),
        ("mmap(NULL, 9, PROT_READ|PROT_WRITE, MAP_PRIVATE, 3</work/a>, 0) = 0x7f", []),
        ("mmap(NULL, 9, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0) = 0x7f", []),
        ('unlink("a") = 0', [("fs.delete", "unlink", "/work/a")]),
        ('unlinkat(AT_FDCWD</work>, "d", AT_REMOVEDIR) = 0', [("fs.delete", "rmdir", "/work/d")]),
        ('unlinkat(3</srv>, "a", 0) = 0', [("fs.delete", "unlink", "/srv/a")]),
        ('rename("a", "/b") = 0', [("fs.delete", "rename", "/work/a"), ("fs.write", "rename", "/b")]),
        (
            'renameat2(3</x>, "a", AT_FDCWD</work>, "b", 0) = 0',
            [("fs.delete", "rename", "/x/a"), ("fs.write", "rename", "/work/b")],
        ),
        ('symlink("/etc/shadow", "a") = 0', [("fs.write", "symlink", "/work/a")]),
        ('link("/etc/shadow", "a") = 0', [("fs.read", "link", "/etc/shadow"), ("fs.write", "link", "/work/a")]),
        ('chmod("a", 0755) = 0', [("fs.write", "chmod", "/work/a")]),
        ('execve("./x", ["x", "y"], 0x7f /* 3 vars */) = 0', [("proc.exec", "exec", "/work/x")]),
        ('execve("/nowhere", ["x"], 0x7f /* 3 vars */) = -1 ENOENT (No such file or directory)', []),
        ('execve("/x", ["x"], 0x7f /* 3 vars */) = -1 EACCES (Permission denied)', [("proc.exec", "exec", "/x")]),
        ('execve("/dev/shm/x", ["x"], 0x7f /* 3 vars */) = 0', [("exec.fileless", "exec", "/dev/shm/x")]),
        (
            'execveat(4</memfd:x>(deleted), "", ["x"], 0x7f /* 3 vars */, AT_EMPTY_PATH) = 0',
            [("exec.fileless", "exec", "/memfd:x")],
        ),
        ("ptrace(PTRACE_ATTACH, 1) = -1 EPERM (Operation not permitted)", [("kernel", "ptrace", "PTRACE_ATTACH, 1")]),
        ("io_uring_setup(4, NULL) = -1 ENOSYS (Function not implemented) (INJECTED)", []),
        ("kill(7, SIGKILL) = 0", [("kernel", "kill", "7, SIGKILL")]),
        ("kill(7, 0) = 0", []),
        (
            'inotify_add_watch(3<anon_inode:inotify>, "/home/a/.ssh", IN_CREATE) = 1',
            [("fs.read", "watch", "/home/a/.ssh")],
        ),
        ('fanotify_mark(3, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD</work>, "d") = 0', [("fs.read", "watch", "/work/d")]),
        ('newfstatat(AT_FDCWD</work>, "a", {st_mode=S_IFREG|0644}, 0) = 0', [("fs.read", "look", "/work/a")]),
        ('access("/x", F_OK) = -1 ENOENT (No such file or directory)', [("fs.read", "look", "/x")]),
        ("futex(0x7f, FUTEX_WAIT, 0, NULL) = 0", []),
    ],
)
def test_a_call_is_what_it_does_to_the_outside(call: str, expected: list[Told]) -> None:
    assert tell(call) == expected


def test_opening_to_read_and_write_is_no_writing_until_something_is_written() -> None:
    assert tell('openat(AT_FDCWD</work>, "a", O_RDWR) = 3</work/a>') == [("fs.read", "open", "/work/a")]
    assert ("fs.write", "write", "/work/a") in tell(
        'openat(AT_FDCWD</work>, "a", O_RDWR) = 3</work/a>', 'write(3</work/a>, "x", 1) = 1'
    )


def test_paths_follow_the_working_directory() -> None:
    told = tell(
        'chdir("/srv") = 0', 'unlink("a") = 0', "fchdir(3</etc>) = 0", 'unlink("b") = 0', 'chdir("/no") = -1 ENOENT'
    )
    assert [target for _, _, target in told] == ["/srv/a", "/etc/b"]


def test_a_program_in_memory_is_found_behind_its_descriptor() -> None:
    seen = [(str(each.capability), each.target) for each in observe(*lines_of("memfd"))]
    assert ("exec.fileless", "/memfd:evil") not in seen
    told = tell(
        'memfd_create("x", MFD_CLOEXEC) = 4</memfd:x>(deleted)',
        "dup(4</memfd:x>(deleted)) = 5</memfd:x>(deleted)",
        'execve("/proc/self/fd/5", ["x"], 0x7f /* 3 vars */) = 0',
    )
    assert told == [("exec.fileless", "exec", "/memfd:x")]


def test_a_descriptor_that_stands_for_a_file_again_is_no_memory() -> None:
    told = tell(
        'memfd_create("x", 0) = 4</memfd:x>(deleted)',
        'openat(AT_FDCWD</work>, "a", O_RDONLY) = 4</work/a>',
        'execve("/proc/self/fd/4", ["x"], 0x7f /* 3 vars */) = 0',
    )
    assert told[-1] == ("proc.exec", "exec", "/proc/self/fd/4")


def test_a_child_inherits_what_is_in_memory() -> None:
    seen = observe(
        '1  1.1 memfd_create("x", 0) = 4</memfd:x>(deleted)',
        "1  1.2 vfork( <unfinished ...>",
        '2  1.3 execve("/proc/self/fd/4", ["x"], 0x7f /* 3 vars */) = 0',
    )
    assert [(each.capability, each.lineage) for each in seen] == [(Capability.EXEC_FILELESS, (2, 1))]


def test_signals_to_its_own_processes_are_its_own_business() -> None:
    seen = observe(
        "1  1.1 fork() = 2",
        "1  1.2 kill(2, SIGTERM) = 0",
        "1  1.3 kill(3, SIGTERM) = 0",
        "1  1.4 kill(-1, SIGTERM) = 0",
        "1  1.5 kill(-2, SIGTERM) = 0",
        "1  1.6 kill(-3, SIGTERM) = 0",
        "1  1.7 rt_sigqueueinfo(3, SIGSTOP, {si_signo=SIGSTOP}) = 0",
    )
    assert [each.path for each in seen][:3] == ["3, SIGTERM", "-1, SIGTERM", "-3, SIGTERM"]
    assert seen[3].action == "kill"
    assert len(seen) == 4


def test_the_group_that_a_server_was_started_in_is_its_own() -> None:
    reader, normaliser = TraceReader(), Normaliser()
    normaliser.group = 90
    told = [normaliser.take(reader.take(f"100  1.1 kill({target}, SIGTERM) = 0")) for target in (-90, 90)]
    assert [len(each) for each in told] == [0, 1]


def test_a_process_is_known_by_its_handle() -> None:
    seen = observe(
        "1  1.1 pidfd_open(7, 0) = 4<anon_inode:[pidfd]>",
        "1  1.2 pidfd_send_signal(4<anon_inode:[pidfd]>, SIGSTOP, NULL, 0) = 0",
        "1  1.3 pidfd_getfd(4<anon_inode:[pidfd]>, 3, 0) = -1 EPERM (Operation not permitted) (INJECTED)",
        "1  1.4 pidfd_send_signal(5<anon_inode:[pidfd]>, SIGSTOP, NULL, 0) = 0",
    )
    assert [(each.action, each.path) for each in seen] == [("kill", "7, SIGSTOP, NULL"), ("pidfd_getfd", "7, 3")]


def test_what_was_refused_to_it_was_tried_all_the_same() -> None:
    refused = "= -1 {} (INJECTED)"
    assert tell(f"ptrace(PTRACE_SEIZE, 7, NULL, 0) {refused.format('EPERM')}")
    assert tell(f"io_uring_setup(4, {{}}) {refused.format('ENOSYS (Function not implemented)')}") == []


def test_an_inherited_log_is_not_the_servers_file() -> None:
    line = '1  1.1 write(2</var/log/client.log>, "x", 1) = 1'
    assert observe(line, ignored=frozenset({b"/var/log/client.log"})) == []
    assert len(observe(line)) == 1


def test_the_words_of_a_program_are_kept() -> None:
    (seen, *_) = [each for each in observe(*lines_of("vfork")) if each.capability is Capability.PROC_EXEC]
    assert seen.argv == ("/bin/sh", "-c", "echo hi > /tmp/tr/out; cat /etc/hosts >/dev/null")
    assert seen.lineage == (1704, 1638)
    assert seen.line.startswith('1704  1794811565.073352 execve("/bin/sh"')


def test_a_failure_is_told_as_one() -> None:
    (seen,) = observe('1  1.1 open("/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)')
    assert (seen.error, seen.ok) == ("EACCES", False)


def test_names_that_look_like_grammar_are_only_names() -> None:
    deleted = [each.path for each in observe(*lines_of("names_that_look_like_grammar")) if each.action == "unlink"]
    names = ["x) = 3", "a<b>c", 'q"uote', "b\\s", "new\nline", "x (deleted)", "y> = 5", "z<unfinished ...>"]
    assert deleted == [f"/tmp/tr/odd/{name}" for name in names]


def test_strace_is_asked_for_all_that_is_made_sense_of() -> None:
    assert set(Normaliser()._handlers) <= {*TRACED, *LOOKS}
    assert set(LOOKS).isdisjoint(TRACED)  # thousands of them: only a probe asks
    assert not {"read", "pread64", "close"} & set(TRACED)


@pytest.mark.parametrize("call", ["openat", "open", "rename", "renameat2", "connect", "execve", "unlinkat"])
def test_a_call_whose_arguments_are_lost_does_not_make_it_raise(call: str) -> None:
    for seen in observe(f"1  1.1 {call}() = 3"):
        assert isinstance(seen.target, str)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 5))
def test_no_trace_however_damaged_makes_it_raise(dice: random.Random, wounds: int) -> None:
    reader, normaliser = TraceReader(), Normaliser()
    for line in dice.sample(LINES, 40):
        for seen in normaliser.take(reader.take(damaged(line, dice, wounds))):
            assert seen.line
            assert isinstance(seen.target, str)


@pytest.mark.parametrize("name", golden_names())
def test_every_golden_trace_can_be_made_sense_of(name: str) -> None:
    for seen in observe(*lines_of(name)):
        assert (seen.path or seen.peer) is not None
