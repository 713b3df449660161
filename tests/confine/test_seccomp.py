"""What the filter does with each system call; tests/confine/test_launch.py has it at work."""

from __future__ import annotations

import errno
import platform
import struct

import pytest

from proxy.confine import seccomp as module
from proxy.confine.seccomp import ALLOW, AT_LEAST, EQUAL, LOAD, MACHINES, REFUSE, RETURN, SyscallNumbers, make_filter
from proxy.sandbox.namespaces import NamespaceError

UNIX, INET, INET6, NETLINK, PACKET, VSOCK, ALG = 1, 2, 10, 16, 17, 40, 38


def judge(machine: SyscallNumbers, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Run the filter over one call, as the kernel does."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, architecture or machine.architecture, 0, *padded)
    steps, at, loaded = make_filter(machine), 0, 0
    while True:
        code, true, false, operand = steps[at]
        at += 1
        if code == LOAD:
            (loaded,) = struct.unpack_from("=I", data, operand)
        elif code == RETURN:
            return operand
        else:
            holds = {EQUAL: loaded == operand, AT_LEAST: loaded >= operand}[code]
            at += true if holds else false


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_the_doors_that_are_in_no_namespace_are_shut_and_the_rest_is_open(machine: SyscallNumbers) -> None:
    for family in (UNIX, INET, INET6, NETLINK):
        assert judge(machine, machine.socket, family, 1) == ALLOW
    for family in (0, PACKET, ALG, VSOCK, 0xFFFFFFFF):
        assert judge(machine, machine.socket, family, 1) == REFUSE | errno.EAFNOSUPPORT
    assert judge(machine, machine.socket, VSOCK | 1 << 32) == REFUSE | errno.EAFNOSUPPORT
    assert judge(machine, machine.io_uring_setup) == REFUSE | errno.ENOSYS
    assert judge(machine, machine.request_key) == REFUSE | errno.ENOSYS
    for request in (0x5412, 0x541C):
        assert judge(machine, machine.ioctl, 0, request) == REFUSE | errno.EPERM
        assert judge(machine, machine.ioctl, 0, request | 1 << 32) == REFUSE | errno.EPERM
    assert judge(machine, machine.ioctl, 0, 0x5401) == ALLOW
    assert judge(machine, 0) == judge(machine, 59) == judge(machine, 460) == ALLOW


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_calls_that_are_numbered_otherwise_are_refused(machine: SyscallNumbers) -> None:
    assert judge(machine, 1, architecture=0x40000003) == REFUSE | errno.ENOSYS
    assert judge(machine, 0x40000000 | machine.socket, VSOCK) == REFUSE | errno.ENOSYS


def test_on_a_machine_that_no_filter_is_known_for_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(NamespaceError, match="'vax'"):
        module.install_filter()
