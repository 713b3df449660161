from __future__ import annotations

from tests.daemon.test_failures import *  # noqa: F403
