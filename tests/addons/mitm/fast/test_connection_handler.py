"""What carries a connection: its watchdog, disarmed as mitmproxy's own is, and what is told of a layer that fails."""

import logging
from contextlib import suppress
from types import SimpleNamespace

import pytest
from mitmproxy.proxy import events
from mitmproxy.proxy.server import TimeoutWatchdog

from addons.mitm.fast.connection_handler import DirectHandler, Watchdog


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


def test_of_a_layer_that_fails_it_is_told_where_and_not_what_was_sent():
    def fail(event: events.Event) -> None:
        raise AssertionError(f"got {event!r}")

    told: list[tuple[str, int]] = []
    handler = SimpleNamespace(
        timeout_watchdog=Watchdog(5, never),
        layer=SimpleNamespace(handle_event=fail),
        log=lambda *said: told.append(said),
    )
    DirectHandler._take(handler, events.DataReceived(None, b"a secret"))
    [(message, level)] = told
    assert level == logging.ERROR
    assert "AssertionError" in message
    assert "in fail" in message
    assert "a secret" not in message
