"""Says what a process finds when it starts, or does what it is told: `python -m tests.support.process_probe VERB …`."""

from __future__ import annotations

import atexit
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def found() -> dict[str, Any]:
    """Return what a program can see of how it was started."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "environ": dict(os.environ),
        "open files": sorted(int(each.name) for each in Path("/proc/self/fd").iterdir())[:-1],
        "name": (__name__, __spec__.name if __spec__ else None, sys.modules["__main__"].__dict__ is globals()),
        "path": sys.path,
        "flags": repr(sys.flags),
        "warnings": sys.warnoptions,
        "streams": [
            (each.encoding, each.line_buffering, each.isatty()) for each in (sys.stdin, sys.stdout, sys.stderr)
        ],
        # Without 32 and 33: the C library takes these for itself as soon as there was a second thread.
        "signals": {name: int(status[name], 16) & ~(3 << 31) for name in ("SigBlk", "SigIgn", "SigCgt")},
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "threads": (status["Threads"].strip(), threading.active_count()),
        "own session": os.getsid(0) == os.getpid(),
    }


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    verb, *rest = sys.argv[1:]
    if verb == "found":
        say(found())
    elif verb == "random":
        say([random.random(), os.urandom(8).hex()])
    elif verb == "echo":
        atexit.register(sys.stderr.write, "at exit\n")
        sys.stdout.write(sys.stdin.read())
    elif verb == "exit":
        sys.exit(json.loads(rest[0]))
    elif verb == "raise":
        raise RuntimeError(rest[0])
    elif verb == "wait":
        say("waiting")
        for _ in range(600):  # one long sleep would outlast a signal that comes just before it begins
            time.sleep(0.1)


if __name__ == "__main__":
    main()
