"""A call in the lane is the same call as one through the layers: same bytes, same answer, same record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.addons.lane.differential import Pair, compare, started_pair
from tests.addons.lane.exchanges import VARIED, made_up, of_case, request, written
from tests.addons.lane.scripted import Exchange, Proxy, ScriptedServer, call, play
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


IN_THE_LANE = (
    "a trace",
    "an odd trace",
    "a state with blanks",
    "another session",
    "another revision",
    "a request's number",
    "a place in a stream",
)


async def test_a_head_with_other_values_of_known_fields_stays_in_the_lane(
    pair: Pair, certificates: Certificates
) -> None:
    server = ScriptedServer(certificates)
    await server.start()
    before, proxy, host = pair.lane_calls, Proxy(pair.lane.port, pair.lane.ca_file), f"127.0.0.1:{server.ports[0]}"
    exchanges = []
    for number, name in enumerate(IN_THE_LANE):
        case, (warm, more) = f"case-{90_000 + number}", VARIED[name]
        exchanges.append(Exchange(name, (request(case, host, call(case), more),), warm=of_case(warm, case)))
    try:
        seen = await asyncio.gather(*(play(each, proxy, server) for each in exchanges))
    finally:
        server.stop()
    assert [name for name, each in zip(IN_THE_LANE, seen, strict=True) if b"fine" not in each.answer] == []
    # The last call of each warm-up, and the call itself.
    assert pair.lane_calls - before == 2 * len(exchanges)
