"""A terminal is there until it is closed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

LOOK = "from proxy.system.terminal import has_terminal; print(has_terminal())"


def test_a_terminal_is_seen_where_there_is_one() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", LOOK])
    said = os.read(terminal, 100)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert said.strip() == b"True"
    alone = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, start_new_session=True, check=True)
    assert alone.stdout.strip() == b"False"
