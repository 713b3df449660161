"""The machine: each thing that may be lacking, lacking."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from proxy.doctor import machine
from proxy.doctor.findings import CheckResult


def states(found: Iterable[CheckResult]) -> dict[str, str]:
    return {one.check: one.state for one in found}


def test_this_machine_can_do_what_the_tests_need() -> None:
    assert states(machine.python()) == {"python": "ok"}
    assert set(states(machine.kernel(os.environ))) == {"namespaces", "nft", "ip", "seccomp", "landlock"}
    assert states(machine.clock()) == {"clock": "ok"}
    assert states(machine.strace("auto", os.environ)) == {"strace": "ok"}
    assert states(machine.strace("off", {})) == {"strace": "ok"}


def test_what_is_too_old_or_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = machine.python((3, 11, 9))
    assert (found.state, "3.12" in found.mend) == ("fail", True)
    nowhere = {"PATH": str(tmp_path)}
    assert states(machine.strace("auto", nowhere)) == {"strace": "warn"}
    assert states(machine.strace("require", nowhere)) == {"strace": "fail"}
    monkeypatch.setattr(machine, "PROGRAMS", str(tmp_path))
    monkeypatch.setattr(machine, "SECCOMP", tmp_path / "none")
    monkeypatch.setattr(machine, "_UNSHARE", "raise OSError(1, 'Operation not permitted')")
    monkeypatch.setattr(machine, "LANDLOCK_CREATE_RULESET", 9999)
    found = {one.check: one for one in machine.kernel(nowhere)}
    expected = {"namespaces": "warn", "nft": "warn", "ip": "warn", "seccomp": "warn", "landlock": "ok"}
    assert {name: one.state for name, one in found.items()} == expected
    assert "apt-get install nftables" in found["nft"].mend
    assert "Operation not permitted" in found["namespaces"].said
    assert "not in this kernel" in found["landlock"].said


def test_a_clock_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(machine.clock(now=1.0)) == {"clock": "fail"}
    assert states(machine.clock(newest=time.time() + 3 * machine.DAY)) == {"clock": "warn"}
    jumps = iter([1_800_000_000.0, 1_800_000_000.0, 1_800_003_600.0])
    monkeypatch.setattr("time.time", lambda: next(jumps))
    (found,) = machine.clock()
    assert (found.state, "jumped by +3599" in found.said) == ("warn", True)
