"""The filter as a program of its own: what it answers for each system call, on every machine that it knows."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from proxy.sandbox import notify_filter
from proxy.sandbox.notify_filter import ALLOW, FILES, MACHINES, NOTIFY, REFUSE, REFUSED, USERS, make_filter
from tests.support.timeouts import PATIENCE

if TYPE_CHECKING:
    from proxy.sandbox.notify_filter import Instruction

ABSENT = REFUSE | errno.ENOSYS
# Calls that newer machines never had.
OLD = frozenset(
    {
        *("open", "creat", "unlink", "rmdir", "rename", "link", "symlink", "mkdir", "mknod", "chmod", "chown"),
        *("lchown", "utime", "utimes", "futimesat", "uselib"),
    }
)
O_PATH = 0o10000000


def answer(steps: list[Instruction], architecture: int, number: int, *arguments: int) -> int:
    """Execute a filter in classic BPF."""
    words = {0: number, 4: architecture, **{16 + 8 * at: value for at, value in enumerate(arguments)}}
    loaded = at = 0
    while True:
        code, true, false, value = steps[at]
        if code == notify_filter.LOAD:
            loaded = words.get(value, 0)
        elif code == notify_filter.RETURN:
            return value
        else:
            holds = {
                notify_filter.EQUAL: loaded == value,
                notify_filter.AT_LEAST: loaded >= value,
                notify_filter.ANY_BIT: bool(loaded & value),
            }[code]
            at += true if holds else false
        at += 1


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_that_is_about_files_is_asked_about(machine: str) -> None:
    known = MACHINES[machine]
    steps = make_filter(known)
    missing = {name for name in (*FILES, *REFUSED, *USERS) if name not in known.numbers}
    assert missing == (OLD if machine == "aarch64" else set())
    for name in (*FILES, *REFUSED, *USERS):
        if name in known.numbers:
            assert answer(steps, known.architecture, known.numbers[name]) == NOTIFY, name


@pytest.mark.parametrize("machine", MACHINES)
def test_what_a_filter_can_tell_by_itself(machine: str) -> None:
    known = MACHINES[machine]
    steps, numbers = make_filter(known), known.numbers

    def ask(name: str, *arguments: int) -> int:
        return answer(steps, known.architecture, numbers[name], *arguments)

    assert ask("openat", 0, 0, O_PATH | 0o2000000) == ALLOW  # only names its object
    assert ask("openat", 0, 0, 0o2000000) == NOTIFY
    assert ask("clone", 0x11) == ALLOW
    assert ask("clone", 0x10000011) == ask("unshare", 0x20000) == NOTIFY
    assert ask("clone3") == ABSENT
    assert ask("socket", 2) == ALLOW
    assert ask("socket", 1) == REFUSE | errno.EAFNOSUPPORT
    assert answer(make_filter(known, unix_sockets=True), known.architecture, numbers["socket"], 1) == ALLOW
    assert answer(steps, known.architecture, 0x40000000 + 257) == ABSENT  # x32
    assert answer(steps, known.architecture, 470) == ABSENT  # later than anything known here
    assert answer(steps, 0x40000003, 5) == ABSENT  # 32 bits
    assert answer(steps, known.architecture, 39 if machine == "x86_64" else 172) == ALLOW  # getpid


def test_a_machine_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_filter, "MACHINES", {})
    with pytest.raises(notify_filter.NotifyError, match="no system call numbers"):
        notify_filter.this_machine()


def test_a_program_starts_only_once_its_supervisor_serves() -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", notify_filter.__file__, str(theirs.fileno()), "pairs", "/bin/true", "true"]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as process:
        theirs.close()
        ours.settimeout(PATIENCE)
        data, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        assert (data, len(descriptors)) == (b"L", 1)
        ours.send(b"N")  # not what it waits for
        assert process.wait(PATIENCE) == 126
        assert process.stderr is not None
        assert b"under a supervisor" in process.stderr.read()
        os.close(descriptors[0])
