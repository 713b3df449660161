from __future__ import annotations

from tests.daemon.test_framing import *  # noqa: F403
