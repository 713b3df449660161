"""The watchdog of a connection, disarmed as mitmproxy's own is."""

from contextlib import suppress

import pytest
from mitmproxy.proxy.server import TimeoutWatchdog

from addons.direct import Watchdog


async def never() -> None:
    raise AssertionError("no time ran out")


@pytest.mark.parametrize("kind", [Watchdog, TimeoutWatchdog])
def test_no_time_runs_out_until_the_last_of_several_hooks_is_done(kind):
    watchdog = kind(5, never)
    with watchdog.disarm():
        with suppress(ZeroDivisionError), watchdog.disarm():
            assert (watchdog.blocker, watchdog.can_timeout.is_set()) == (2, False)
            _ = 1 // 0
        assert (watchdog.blocker, watchdog.can_timeout.is_set()) == (1, False)
        watchdog.last_activity = 0.0
    assert (watchdog.blocker, watchdog.can_timeout.is_set()) == (0, True)
    assert watchdog.last_activity > 0
