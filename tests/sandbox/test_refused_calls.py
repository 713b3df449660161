"""What a refused system call is called, and that every one that the filter refuses is known here."""

from __future__ import annotations

import pytest

from proxy.sandbox.notify_kernel import Question
from proxy.sandbox.refused_calls import _names, violation_of
from proxy.sandbox.syscall_filter import ARCHITECTURES, CALLS, NOTIFY, SOCKET, make_filter

COLUMN = {machine: column for machine, (_, column) in ARCHITECTURES.items()}


def told(machine: str, number: int, *arguments: int) -> tuple[str, str, str | None]:
    found = violation_of(Question(1, 2, number, (*arguments, 0, 0, 0)), _names(machine))
    assert found.line
    assert found.mechanism == "seccomp"
    return found.capability, found.target, found.error


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_refused_call_has_a_name(machine: str):
    for name, numbers in CALLS.items():
        number = numbers[COLUMN[machine]]
        assert number is None or told(machine, number) == ("kernel", name, "EPERM")


@pytest.mark.parametrize(
    ("family", "kind", "expected"),
    [
        (1, 1, ("ipc.unix", "a unix socket", "EAFNOSUPPORT")),
        (1, 0x80801, ("ipc.unix", "a unix socket", "EAFNOSUPPORT")),
        (2, 3, ("net.connect", "a raw socket", "EPERM")),
        (10, 0x80003, ("net.connect", "a raw socket", "EPERM")),
        (17, 3, ("kernel", "socket of family 17", "EAFNOSUPPORT")),
    ],
)
def test_a_socket_is_told_by_its_kind(family: int, kind: int, expected: tuple[str, str, str]):
    assert told("x86_64", SOCKET[0], family, kind) == expected


def test_a_filter_that_tells_refuses_the_same_calls():
    plain, asking = (
        make_filter("x86_64", unix=False, inet=True, memfd_exec_off=True, told=each) for each in (False, True)
    )
    assert [step for step in asking if step[3] == NOTIFY]
    assert len(plain) == len(asking)
    # A step differs only where one answers with an error and the other asks.
    assert all(
        one == other or (other[3] == NOTIFY and one[3] >> 16 == 5) for one, other in zip(plain, asking, strict=True)
    )
