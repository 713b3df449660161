"""The reaper of a sandboxed server: its process becomes `sandbox_exec` itself, in place of an interpreter that runs it.

Run as a script with the words of `process_reaper.py`. To start an interpreter was a fifth of what a sandbox cost.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    # Isolated (-I, -S) as it is, Python knows no folder of ours; the one this file was run from is.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from proxy.sandbox import process_reaper, sandbox_exec

# Before the words that `sandbox_exec` takes.
OPTIONS = ("-I", "-S", os.path.abspath(sandbox_exec.__file__))  # noqa: PTH100


def become_sandbox(program: str, argv: list[str]) -> None:
    """Do what executing this interpreter on `sandbox_exec.py` would; execute any other program."""
    if (*argv[1:4],) != OPTIONS:
        process_reaper.execute_program(program, argv)
    signal.set_wakeup_fd(-1)
    # As after an exec: else its files in /proc, such as uid_map, would be root's.
    process_reaper.prctl(process_reaper.PR_SET_DUMPABLE, 1)
    os._exit(sandbox_exec.main(argv[4:]))


if __name__ == "__main__":
    os._exit(process_reaper.main(sys.argv[1:], become_sandbox))
