"""Landlock by itself, with the kernel's refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from proxy.sandbox import landlock

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import os, sys
from proxy.sandbox import landlock
from proxy.sandbox.kernel_calls import LIBC
import ctypes
assert LIBC.prctl(38, ctypes.c_ulong(1), 0, 0, 0) == 0
folder = sys.argv[1]
landlock.restrict([(folder + "/shown", landlock.READ), (folder + "/gone", landlock.READ)], abi=landlock.version())
for act in (lambda: open(folder + "/shown/x").read(), lambda: open(folder + "/hidden/x").read(),
            lambda: open(folder + "/shown/x", "w"), lambda: os.rename(folder + "/shown/x", folder + "/x"),
            lambda: os.listdir(folder)):
    try:
        act(); print("done")
    except OSError as error:
        print(type(error).__name__)
"""


def test_only_what_is_named_can_be_opened(tmp_path: Path):
    assert landlock.version() >= 1, "this kernel has Landlock"
    for name in ("shown", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["done", *["PermissionError"] * 4]


def test_a_version_asks_for_no_right_that_it_does_not_know():
    assert all(rights < 1 << 16 for rights in landlock.HANDLED.values())
    assert landlock.HANDLED[1] & landlock.REFER == 0
    assert landlock.WRITE & (landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.EXECUTE) == 0
