"""System calls that Python has no function for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proxy.sandbox.kernel_calls import SandboxError, check, mount

KEYRINGS = """
from proxy.sandbox.kernel_calls import LIBC, join_new_session_keyring, KEYCTL
import os
number = KEYCTL[os.uname().machine]
before = LIBC.syscall(number, 0, -3, 0)
assert join_new_session_keyring()
print(before != LIBC.syscall(number, 0, -3, 0))
"""


def test_a_refused_call_says_which_step_and_why():
    with pytest.raises(SandboxError, match="mounting nothing on /nowhere: "):
        mount(None, "/nowhere", "nothing", 0)
    assert check(3, "x") == 3


def test_a_session_keyring_is_a_new_one():
    done = subprocess.run([sys.executable, "-c", KEYRINGS], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True"]
