"""Plays exchanges through a proxy with the lane and through one without, and says where they differ."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.addons.lane.scripted import Exchange, Pool, Proxy, ScriptedServer, Seen, neutral, play
from tests.support.harness import Certificates, Interlock, start_interlock
from tests.support.timeouts import PATIENCE

POLICY = """\
version: 1
default: allow
rules:
  - {id: no-danger, description: Forbidden, action: deny, tools: [danger]}
  - id: no-system-files
    description: Forbidden paths
    action: deny
    tools: [read_file]
    when: {all: [{arg: path, path_under: [/etc]}]}
  - {id: scrub, action: redact, tools: ["*"], on: [arguments, result], detectors: [secrets]}
egress: {default: allow, loopback: allow, secrets: deny}
"""
AT_ONCE = 24
SETTLE = 0.5
"""By then a call whose client is gone has reached the server, or never will."""
RECORDED = ("kind", "decision", "reason", "rule", "tool", "outcome", "result_size", "session", "revision")
_CASE = re.compile(r"case-[0-9]+")
_COUNTER = re.compile(r"^interlock_lane_calls_total ([0-9.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Pair:
    """A proxy with the lane, one without, and the server behind both."""

    lane: Interlock
    layers: Interlock

    @property
    def lane_calls(self) -> float:
        """How many requests began in the lane."""
        with urllib.request.urlopen(f"{self.lane.health_url}/metrics", timeout=PATIENCE) as answer:
            found = _COUNTER.search(answer.read().decode())
        return float(found[1]) if found else 0.0


@contextmanager
def started_pair(folder: Path, certificates: Certificates) -> Iterator[Pair]:
    """Run both proxies until the block ends."""
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                start_interlock(
                    folder / name,
                    policy=POLICY,
                    upstream_ca=certificates.ca_file,
                    flags=[flag],
                    env={"INTERLOCK_FAST": "on"},
                )
            )
            for name, flag in (("lane", "--fast-lane"), ("layers", "--no-fast-lane"))
        ]
        yield Pair(*both)


async def play_all(
    exchanges: Iterable[Exchange], pair: Pair, server: ScriptedServer, at_once: int = AT_ONCE
) -> dict[str, tuple[Seen, Seen]]:
    """Play every exchange through both proxies; return what came of each."""
    results: dict[str, tuple[Seen, Seen]] = {}
    limit = asyncio.Semaphore(at_once)
    pools: tuple[Pool, Pool] = {}, {}

    async def one(exchange: Exchange) -> None:
        async with limit:
            results[exchange.name] = (
                await _through(exchange, pair.lane, server, pools[0]),
                await _through(exchange, pair.layers, server, pools[1]),
            )

    try:
        await asyncio.gather(*map(one, exchanges))
    finally:
        for connection in (each for pool in pools for kept in pool.values() for each in kept):
            connection.writer.transport.abort()
    return results


async def compare(
    exchanges: Sequence[Exchange], pair: Pair, server: ScriptedServer, tries: int = 3, at_once: int = AT_ONCE
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the differences that stay, and those that were there once: on a busy machine, an answer may be late."""
    once: dict[str, str] = {}
    stay: dict[str, str] = {}
    left, earlier = list(exchanges), set[str]()
    for attempt in range(tries):
        results = await play_all(left, pair, server, at_once if not attempt else min(at_once, AT_ONCE))
        earlier |= await asyncio.to_thread(add_events, results, pair, earlier)
        stay = differences(results)
        once |= stay
        left = [exchange for exchange in left if exchange.name in stay]
        if not left:
            break
    return stay, once


async def _through(exchange: Exchange, interlock: Interlock, server: ScriptedServer, pool: Pool) -> Seen:
    cases = [case.encode() for case in _CASE.findall(exchange.name)]
    for case in cases:
        server.scripts[case] = exchange.answers
        server.got.pop(case, None)
    seen = await play(exchange, Proxy(interlock.port, interlock.ca_file), server, pool)
    if seen.gone:
        await asyncio.sleep(SETTLE)
    seen.forwarded = [got for case in cases for got in server.got.pop(case, [])]
    return seen


def add_events(results: dict[str, tuple[Seen, Seen]], pair: Pair, earlier: set[str]) -> set[str]:
    """Add what each proxy recorded of each exchange, without the calls of an earlier try; return the calls."""
    all_calls: set[str] = set()
    for which, interlock in enumerate((pair.lane, pair.layers)):
        by_case: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        calls: dict[str, str] = {}
        recorded = interlock.events()
        for event in recorded:
            found = _CASE.search(json.dumps(event.get("arguments") or {}))
            if found and event.get("call_id") and event["call_id"] not in earlier:
                calls[event["call_id"]] = found[0]
        all_calls |= calls.keys()
        for event in recorded:
            case = calls.get(event.get("call_id") or "")
            if case:
                masked = sorted(str(each.get("detector")) for each in event.get("redactions") or [])
                shown = (event.get(name) for name in RECORDED)
                trace = (event.get("detail") or {}).get("traceparent")
                by_case[case].append((*shown, trace, tuple(masked)))
        for name, both in results.items():
            for case in _CASE.findall(name)[:1]:
                both[which].events = sorted(set(by_case.get(case, [])), key=repr)
    return all_calls


def differences(results: dict[str, tuple[Seen, Seen]]) -> dict[str, str]:
    """Return what differs in each exchange in which the two proxies differ."""
    return {
        name: f"{name}\n  lane:   {_shown(lane)}\n  layers: {_shown(layers)}"
        for name, (lane, layers) in results.items()
        if _shown(lane) != _shown(layers) and not (_is_cut(lane, layers) and lane.forwarded == layers.forwarded)
    }


def _is_cut(lane: Seen, layers: Seen) -> bool:
    """Return whether a proxy closed a connection on which its client still wrote: its last words may be lost then."""
    return lane.reset or layers.reset


def _shown(seen: Seen) -> tuple[object, ...]:
    if seen.gone:  # how far a call gets before its client's end is noticed differs from time to time; once is the most
        return (max(1, len(seen.forwarded)),)
    answer = neutral(_joined_chunks(seen.answer))
    return (
        answer[:600],
        len(answer),
        seen.closed,
        [neutral(each)[:600] for each in seen.forwarded],
        seen.events,
    )


_CHUNK = re.compile(rb"\r\n([0-9a-fA-F]+)\r\n")


def _joined_chunks(answer: bytes) -> bytes:
    """Return an answer whose chunks are joined: how a stream is cut into chunks depends on when its pieces came."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return answer
    out, at = b"", 0
    body = b"\r\n" + body
    while (found := _CHUNK.match(body, at)) is not None:
        size = int(found[1], 16)
        out += body[found.end() : found.end() + size]
        at = found.end() + size
        if not size:
            break
    return head + end + out + b"|" + body[at:]
