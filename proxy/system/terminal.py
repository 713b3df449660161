"""Whether this process has a terminal. A terminal that is closed sends SIGHUP, which also means "reload the policy"."""

from __future__ import annotations

import os


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
