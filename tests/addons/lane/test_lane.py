"""A call in the lane is the same call as one through the layers: same bytes, same answer, same record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.addons.lane.differential import Pair, compare, started_pair
from tests.addons.lane.exchanges import made_up, written
from tests.addons.lane.scripted import ScriptedServer
from tests.support.harness import Certificates

MADE_UP = 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Pair]:
    with started_pair(tmp_path_factory.mktemp("lane"), certificates) as both:
        yield both


async def test_lane_and_layers_do_the_same(pair: Pair, certificates: Certificates) -> None:
    server = ScriptedServer(certificates)
    await server.start()
    hosts = [f"127.0.0.1:{port}" for port in server.ports]
    exchanges = [*written(*hosts), *made_up(MADE_UP, 1, *hosts)]
    try:
        stay, _ = await compare(exchanges, pair, server)
    finally:
        server.stop()
    assert not stay, "\n".join(stay.values())
    # Two calls of each warm-up teach the lane; the third goes through it, and so does about half of what follows.
    assert pair.lane_calls >= len(exchanges) * 1.3
