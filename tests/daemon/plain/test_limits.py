from __future__ import annotations

from tests.daemon.test_limits import *  # noqa: F403
