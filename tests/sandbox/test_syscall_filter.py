"""The filter of system calls, run by a small interpreter of classic BPF; the kernel runs it in test_sandbox_exec."""

from __future__ import annotations

import errno

import pytest

from proxy.sandbox import syscall_filter as filters
from proxy.sandbox.syscall_filter import ALLOW, ARCHITECTURES, REFUSE, make_filter


def decide(
    machine: str, number: int, *arguments: int, unix: bool = False, inet: bool = True, exec_off: bool = True
) -> int:
    """Return the error that a call gets; 0 where it passes."""
    found = outcome(machine, number, *arguments, unix=unix, inet=inet, exec_off=exec_off)
    return 0 if found == ALLOW else found & ~REFUSE


def outcome(
    machine: str,
    number: int,
    *arguments: int,
    unix: bool = False,
    inet: bool = True,
    exec_off: bool = True,
    upper: int = 0,
) -> int:
    """Return what the filter says of a call; `upper` is the upper half of its third argument."""
    words = {0: number, 4: ARCHITECTURES[machine][0]}
    words |= {16 + 8 * place: value for place, value in enumerate(arguments)}
    words[16 + 8 * 2 + 4] = upper
    steps = make_filter(machine, unix=unix, inet=inet, memfd_exec_off=exec_off)
    accumulator = position = 0
    while True:
        code, true, false, operand = steps[position]
        position += 1
        match code:
            case filters.LOAD:
                accumulator = words.get(operand, 0)
            case filters.MASK:
                accumulator &= operand
            case filters.EQUAL:
                position += true if accumulator == operand else false
            case filters.AT_LEAST:
                position += true if accumulator >= operand else false
            case filters.ANY_BIT:
                position += true if accumulator & operand else false
            case _:
                return operand


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_what_nobody_needs_is_refused_and_the_rest_passes(machine: str):
    column = ARCHITECTURES[machine][1]
    for numbers in filters.CALLS.values():
        number = numbers[column]
        assert number is None or decide(machine, number) == errno.EPERM
    for known in filters.UNKNOWN.values():
        assert decide(machine, known[column]) == errno.ENOSYS
    assert decide(machine, filters.X32 + 1) == errno.ENOSYS
    assert decide(machine, filters.FIRST_UNKNOWN) == errno.ENOSYS
    assert decide(machine, filters.FIRST_UNKNOWN - 1) == 0
    assert decide(machine, 0) == 0


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_arguments_are_looked_at(machine: str):
    column = ARCHITECTURES[machine][1]
    clone, unshare, made, pair = (
        each[column] for each in (filters.CLONE, filters.UNSHARE, filters.SOCKET, filters.SOCKETPAIR)
    )
    assert decide(machine, clone, 0x10000011) == errno.EPERM
    assert decide(machine, clone, 0x003D0F00) == 0  # a thread
    assert decide(machine, unshare, 0x80) == errno.EPERM
    assert decide(machine, unshare, 0x400) == 0  # its own table of files
    assert decide(machine, made, filters.UNIX, 1) == errno.EAFNOSUPPORT
    assert decide(machine, made, filters.UNIX, 1, unix=True) == 0
    for kind in (1, 5 | 0o2000000):
        assert decide(machine, pair, filters.UNIX, kind) == 0
    for kind in (2, 2 | 0o2000000, 3):  # each end sends to whom it likes
        assert decide(machine, pair, filters.UNIX, kind) == errno.EAFNOSUPPORT
        assert decide(machine, pair, filters.UNIX, kind, unix=True) == 0
    for family in (filters.INET, filters.INET6):
        assert decide(machine, made, family, 1 | 0o2000000) == 0
        assert decide(machine, made, family, 3 | 0o2000000) == errno.EPERM
        assert decide(machine, made, family, 1, inet=False) == errno.EAFNOSUPPORT
        assert [each for each in range(300) if decide(machine, made, family, 2, each) == 0] == [*filters.PROTOCOLS]
    assert decide(machine, made, filters.NETLINK, 3, 0) == 0
    assert decide(machine, made, filters.NETLINK, 3, 9) == errno.EAFNOSUPPORT
    for family in (17, 38, 40):  # packets, the kernel's cryptography, virtual machines
        assert decide(machine, made, family, 1) == errno.EAFNOSUPPORT
    memfd = filters.MEMFD_CREATE[column]
    assert decide(machine, memfd, 0, filters.MFD_EXEC) == errno.EPERM
    assert decide(machine, memfd, 0, 1) == 0
    assert decide(machine, memfd, 0, 1, exec_off=False) == errno.ENOSYS
    assert decide(machine, memfd, 0, filters.MFD_NOEXEC_SEAL, exec_off=False) == 0
    assert decide(machine, filters.IOCTL[column], 0, filters.TIOCSTI) == errno.EPERM


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_limits_modes_and_listeners_are_looked_at(machine: str):
    column = ARCHITECTURES[machine][1]
    for *numbers, place in filters.CHANGE_MODE.values():
        number, before = numbers[column], (0,) * place
        assert number is None or decide(machine, number, *before, 0o4755) == errno.EPERM
        assert number is None or decide(machine, number, *before, 0o2755) == 0
    install = filters.SECCOMP[column]
    assert decide(machine, install, 1, filters.NEW_LISTENER) == errno.EPERM
    assert decide(machine, install, 1, 1) == 0  # of all its threads


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_limit_on_core_files_is_asked_for_and_not_changed(machine: str):
    column = ARCHITECTURES[machine][1]
    one, of_another = filters.SET_LIMIT[column], filters.SET_LIMIT_OF[column]
    assert outcome(machine, one, filters.RLIMIT_CORE) == filters.REFUSE  # done, as far as it is told
    assert outcome(machine, one, 7) == ALLOW
    assert outcome(machine, of_another, 0, 7, 1) == ALLOW
    for new, upper, expected in ((0, 0, ALLOW), (8, 0, filters.REFUSE), (0, 8, filters.REFUSE)):
        assert outcome(machine, of_another, 0, filters.RLIMIT_CORE, new, upper=upper) == expected


def test_a_machine_that_is_not_known_is_an_error():
    with pytest.raises(KeyError):
        make_filter("pdp11", unix=False, inet=False, memfd_exec_off=False)
