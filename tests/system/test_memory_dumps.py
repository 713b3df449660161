"""A process that holds credentials leaves no core file, and nobody but root reads its memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """\
import resource, sys
from proxy.system.memory_dumps import keep_out_of_dumps
keep_out_of_dumps()
keep_out_of_dumps()
print(resource.getrlimit(resource.RLIMIT_CORE))
if sys.platform == "linux":
    import ctypes
    print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_DUMPABLE is Linux's")
def test_it_is_no_longer_dumpable() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["(0, 0)", "0"]
