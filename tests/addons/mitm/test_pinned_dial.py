"""mitmproxy dials judged hosts only, and only at the addresses they were judged by."""

from __future__ import annotations

import socket

import pytest

from addons.mitm.pinned_dial import PinnedHost, dial


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_judged_host_is_equal_to_the_bare_one():
    judged = PinnedHost("example.com", ["192.0.2.1"])
    assert judged == "example.com"
    assert {("example.com", 1): "found"}[(judged, 1)] == "found"


async def test_a_host_that_was_not_judged_is_not_dialled(listener):
    with pytest.raises(ConnectionRefusedError, match="not judged"):
        await dial("127.0.0.1", listener.getsockname()[1])


async def test_a_judged_host_is_dialled_at_its_addresses_and_not_by_its_name(listener):
    _, writer = await dial(PinnedHost("nowhere.invalid", ["127.0.0.1"]), listener.getsockname()[1])
    writer.close()
    await writer.wait_closed()


async def test_the_next_address_is_tried_where_one_does_not_answer(listener):
    _, writer = await dial(PinnedHost("name.invalid", ["127.0.0.2", "127.0.0.1"]), listener.getsockname()[1])
    assert writer.get_extra_info("peername")[0] == "127.0.0.1"
    writer.close()
    await writer.wait_closed()


async def test_a_host_without_addresses_is_not_dialled(listener):
    with pytest.raises(OSError, match="no address"):
        await dial(PinnedHost("localhost", []), listener.getsockname()[1])
