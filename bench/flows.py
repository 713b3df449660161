"""What flows add to a call, and to a labelled result: `python -m bench.flows`.

The same calls through the real gate, with a real store on a file, in processor time: the least of some rounds, since
machines are noisy. The lines of a policy without flows are what the gate takes anyway.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from proxy.core.model import Forward
from proxy.flows.fingerprint import Fingerprinter
from proxy.flows.outgoing import keep
from tests.support.flow_fixture import KEY, WIKI, FlowWorld, open_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NO_FLOWS = "version: 1\ndefault: allow\n"
ROUNDS = 7
SMALL: dict[str, Any] = {"url": "https://example.com/weather?city=Oslo", "body": "Is it going to rain on Friday?"}
READ_BYTES, SENT_BYTES = 20_000, 2_000


def prose(size: int, seed: int) -> str:
    """Return a text of made-up words with some values in it, always the same for a seed."""
    chance = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 9))) for _ in range(400)]
    text, length = list[str](), 0
    while length < size:
        sentence = " ".join(chance.choices(words, k=12)).capitalize() + f" {chance.randint(10, 10**7)}.\n"
        text.append(sentence)
        length += len(sentence)
    return "".join(text)[:size]


async def cost(work: Callable[[], Awaitable[object]], calls: int) -> float:
    """Return the processor time of one call, in µs."""
    found = []
    gc.disable()
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(calls):
            await work()
        found.append(time.process_time() - began)
        gc.collect()
    gc.enable()
    return min(found) / calls * 1e6


async def sent(world: FlowWorld, arguments: Any, calls: int, server: str = "web") -> float:
    """Return the cost of a call up to its being forwarded."""

    async def work() -> None:
        verdict = await world.ask(server, "post" if server == "web" else "other", arguments)
        if not isinstance(verdict, Forward):
            raise TypeError("the call of the benchmark was stopped")

    return await cost(work, calls)


async def measure(folder: Path, calls: int) -> None:
    large = {"url": "https://example.com/", "body": prose(SENT_BYTES, 2)}
    page = prose(READ_BYTES, 1)
    without, world = open_world(folder / "without", NO_FLOWS), open_world(folder / "with", WIKI)
    plain = await sent(without, SMALL, calls)
    rows = [("a call, no flow in the policy", plain)]
    rows.append(("flows, none about this call", await sent(world, SMALL, calls, "elsewhere")))
    rows.append(("a flow about it, nothing labelled read yet", await sent(world, SMALL, calls)))
    await world.read("wiki", "read_page", page)
    rows.append(("after 20 KB were read, a small call", await sent(world, SMALL, calls)))
    rows.append(("a call of 2 KB, no flow in the policy", await sent(without, large, calls)))
    rows.append(("after 20 KB were read, a call of 2 KB", await sent(world, large, calls)))
    printer, result = Fingerprinter(KEY), {"result": {"content": [{"type": "text", "text": page}]}}

    async def fingerprint() -> None:
        keep(printer, result)

    rows.append(("fingerprints of a result of 20 KB", await cost(fingerprint, max(1, calls // 20))))
    for name, micros in rows:
        print(f"{name:46} {micros:9.1f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measure(Path(name), given.calls))


if __name__ == "__main__":
    main()
