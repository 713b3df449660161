"""Recorded runs: a server's trace, and what passed on its stdio meanwhile. Played back without strace.

`python -m tests.trace.recordings FOLDER` makes them again: of `busy.py` in each mode, calls one by one and eight
at once.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.trace.attribute import AttributedObservation, Attributor
from proxy.trace.normalise import TRACED, Normaliser
from proxy.trace.strace import TraceReader
from proxy.trace.tracer import options
from tests.support.timeouts import PATIENCE

FOLDER = Path(__file__).parent / "recordings"
SERVER = Path(__file__).parents[1] / "servers" / "busy.py"
MODES = ("sync", "threads", "async", "spawn")
AT_ONCE = 8
ROUNDS = 3
TRUTH = re.compile(r"(?:truth|input)-(\d+)")


def load(name: str) -> dict[str, Any]:
    with gzip.open(FOLDER / f"{name}.json.gz", "rt") as file:
        return json.load(file)


def play(recording: dict[str, Any]) -> list[AttributedObservation]:
    """Return what the attributor makes of a recording: its trace line by line, and what passed on stdio at its time."""
    attributor = Attributor(recording["stdout"])
    reader, normaliser = TraceReader(), Normaliser(forks=True)
    told: list[AttributedObservation] = []
    passed = iter([*recording["passed"], None])
    following = next(passed)
    for line in recording["lines"]:
        event = reader.take(line)
        while following is not None and following["time"] < getattr(event, "until", getattr(event, "time", 0)) + 0.001:
            told += pass_on(attributor, following)
            following = next(passed)
        told += attributor.take(event, normaliser.take(event))
    while following is not None:
        told += pass_on(attributor, following)
        following = next(passed)
    assert reader.unparsed == 0
    return [*told, *attributor.flush()]


def pass_on(attributor: Attributor, what: dict[str, Any]) -> list[AttributedObservation]:
    if what["way"] == "out":
        attributor.request_sent(what["call"], what["method"], what["arguments"], what["time"])
        return []
    attributor.call_ended(what["call"], what["start"], what["time"])
    attributor.reading_began()
    return attributor.output_read(what["end"])


def truths(told: list[AttributedObservation]) -> Iterator[tuple[str, AttributedObservation]]:
    """Return what the tools did, each with the call that did it."""
    for each in told:
        what = each.observation
        found = TRUTH.search(what.path or "") if what.capability != "proc.exec" else None
        if found:
            yield f"call-{found[1]}", each


def record(mode: str, at_once: int, *, with_paths: bool) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="busy-"))
    lines = folder / "lines"
    trace = [*options((*TRACED,)), "-o", str(lines)]
    server = subprocess.Popen(
        ["strace", *trace, "--", sys.executable, "-I", str(SERVER), mode, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin
    assert server.stdout
    inodes = [os.fstat(pipe.fileno()).st_ino for pipe in (server.stdin, server.stdout)]
    passed: list[dict[str, Any]] = []
    _ask(server, passed, "opening", "initialize", {})
    _answers(server, passed, 1, 0)
    number = start = 0
    start = passed[-1]["end"]
    for _ in range(ROUNDS if at_once > 1 else ROUNDS * 2):
        reading = threading.Thread(target=_answers, args=(server, passed, at_once, start))
        reading.start()
        for _ in range(at_once):
            number += 1
            path = folder / f"input-{number}"
            path.write_text("x")
            _ask(
                server,
                passed,
                f"call-{number}",
                "tools/call",
                {"n": number} | ({"path": str(path)} if with_paths else {}),
            )
        reading.join()
        start = max(each["end"] for each in passed if each["way"] == "back")
        time.sleep(0.02)
    server.stdin.close()
    server.wait(PATIENCE)
    time.sleep(0.2)
    passed.sort(key=lambda each: each["time"])
    return {
        "stdin": inodes[0],
        "stdout": inodes[1],
        "passed": passed,
        "lines": lines.read_text("latin-1").split("\n")[:-1],
    }


def _ask(server: subprocess.Popen[bytes], passed: list[dict[str, Any]], call: str, method: str, arguments: Any) -> None:
    params = {"name": "work", "arguments": arguments} if method == "tools/call" else arguments
    line = json.dumps({"jsonrpc": "2.0", "id": call, "method": method, "params": params}).encode() + b"\n"
    now = time.time()
    passed.append(
        {"way": "out", "call": call, "method": method, "arguments": arguments, "size": len(line), "time": now}
    )
    assert server.stdin
    server.stdin.write(line)
    server.stdin.flush()


def _answers(server: subprocess.Popen[bytes], passed: list[dict[str, Any]], count: int, start: int) -> None:
    assert server.stdout
    for _ in range(count):
        line = server.stdout.readline()
        end = start + len(line)
        call = json.loads(line)["id"]
        passed.append({"way": "back", "call": call, "start": start, "end": end, "time": time.time()})
        start = end


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for mode in MODES:
        for at_once in (1, AT_ONCE):
            for with_paths in (True, False):
                name = f"{mode}-{at_once}{'-paths' if with_paths else ''}"
                recording = record(mode, at_once, with_paths=with_paths)
                with gzip.open(folder / f"{name}.json.gz", "wt", compresslevel=9) as file:
                    json.dump(recording, file, separators=(",", ":"))
                told = list(truths(play(recording)))
                right = sum(each.attribution.calls[:1] == (call,) for call, each in told)
                among = sum(call in each.attribution.calls for call, each in told)
                sys.stdout.write(f"{name}: first {right}/{len(told)}, among the candidates {among}/{len(told)}\n")


if __name__ == "__main__":
    main()
