"""Show which files one allowed tool call passes through: `make walk` prints the walk and draws docs/walk.svg.

A real proxy runs with one worker and the shipped policy, before a real HTTP server. The worker's main thread
is profiled, so the walk has every Python function of proxy/ and addons/ that a call enters, in order. Calls are
sent one after the other with pauses between them; a pause is what tells one call's functions from the next's.
The shortest walk of all calls is shown: the longer ones had a timer of the event loop in between.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "walk.svg"
CALLS = 8
PAUSE = 0.2
START_LIMIT = 180.0
REQUEST, RESPONSE = "CompiledPolicy.decide", "EventRecorder.completed"  # on the two halves of a call's path
FONT = 'font-family="sans-serif" font-size="11"'
LABEL = 'fill="#1f2937" stroke="#ffffff" stroke-width="3" paint-order="stroke"'  # readable where lines cross it
# Imported by every process of the proxy at its start (`sitecustomize`); a worker is forked and keeps the profiler.
# What it collected is written when the process was quiet for a while, at the latest by the next tick of its clock.
# What looks for halts many times a second is no part of a call, and would leave no pause between two.
ALWAYS_AT_WORK = ("/halt_watcher.py", "/halt_file.py", "/halt_store.py", "/queries.py", "/database.py", "/sqlite.py")
# How the log commits is no step of a call either, whether its own thread does it or, for a call alone, this one.
OF_THE_LOG = ("LocalLog._commit_here", "log_decisions")
PROFILER = f"""
import json, os, sys, time
collected, last, root, inside = [], 0.0, {str(ROOT)!r} + "/", 0
def profile(frame, event, _):
    global last, inside
    file = frame.f_code.co_filename
    if frame.f_code.co_qualname in {OF_THE_LOG!r} and file.startswith(root):
        inside += (event == "call") - (event == "return")
    ours = file.startswith((root + "proxy/", root + "addons/")) and not file.endswith({ALWAYS_AT_WORK!r})
    if inside or event != "call" or not ours:
        return
    now = time.monotonic()
    if now - last > {PAUSE / 3} and collected:
        with open(os.environ["WALK_FILE"], "a") as out:
            out.write(json.dumps(collected) + "\\n")
        collected.clear()
    collected.append([file[len(root):], frame.f_code.co_qualname])
    last = now
sys.setprofile(profile)
"""
BODY = {
    "jsonrpc": "2.0",
    "method": "tools/call",
    "params": {"name": "walk_search", "arguments": {"query": "weather in Paris", "limit": 5}},
}


class Visit(NamedTuple):
    """A stay in one file: its functions, in the order in which they were entered."""

    file: str
    functions: tuple[str, ...]


class Server(BaseHTTPRequestHandler):
    """Answers every call with a small text."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one call."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        result = {"content": [{"type": "text", "text": "sunny"}], "isError": False}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def record(folder: Path, policy: str, cache: Path | None = None) -> list[list[tuple[str, str]]]:
    """Return, for each stretch of work of the worker, the functions it entered, as (file, function)."""
    (folder / "sitecustomize.py").write_text(PROFILER)
    calls = folder / "calls.jsonl"
    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    upstream = f"reverse:http://127.0.0.1:{server.server_port}"
    state = folder / "state"
    if cache is not None:
        shutil.copytree(cache, state / "cache")
    flags = ["--listen", "127.0.0.1:0", "--mode", upstream, "--state-dir", str(state), "--workers", "1"]
    flags += ["--no-fast-lane", "--policy", str(ROOT / "policies" / policy)]
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "WALK_FILE": str(calls)}
    command = [sys.executable, "-m", "proxy.cli", "up", *flags]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as up:
        try:
            _send_calls(_address(state, up))
            time.sleep(1.5)  # the worker's clock ticks every second: the last call is written by then
        finally:
            up.terminate()
            up.wait(START_LIMIT)
    server.shutdown()
    return [[(file, function) for file, function in json.loads(line)] for line in calls.read_text().splitlines()]


def _address(state: Path, up: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and up.poll() is None:
        if (state / "run.json").exists():
            return str(json.loads((state / "run.json").read_text())["listen"])
        time.sleep(0.05)
    raise SystemExit("the proxy did not start; `make run` says why")


def _send_calls(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=START_LIMIT)
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    for number in range(CALLS):
        connection.request("POST", "/mcp", json.dumps(BODY | {"id": number}), headers)
        answer = json.loads(connection.getresponse().read())
        assert answer["result"]["content"][0]["text"] == "sunny", answer
        time.sleep(PAUSE)


def walks(stretches: Sequence[Sequence[tuple[str, str]]], top: str) -> Iterator[list[Visit]]:
    """Yield the walk of each call through the files below `top`."""
    for call in _calls(stretches):
        by_file = groupby((step for step in call if step[0].startswith(top)), key=lambda step: step[0])
        yield [Visit(file, tuple(function for _, function in steps)) for file, steps in by_file]


def _calls(stretches: Sequence[Sequence[tuple[str, str]]]) -> Iterator[list[tuple[str, str]]]:
    """Yield the functions of each whole call; on a busy machine a pause may fall into a call, which is put together."""
    call: list[tuple[str, str]] = []
    for stretch in stretches:
        entered = {function for _, function in (*call, *stretch)}
        if REQUEST in entered:
            call.extend(stretch)
        if entered >= {REQUEST, RESPONSE}:
            yield call
            call = []


def draw(walk: Sequence[Visit]) -> str:
    """Return an SVG of a walk: a column for each package, a line for each visit to a file."""
    packages = list(dict.fromkeys(_package(visit.file) for visit in walk))
    width, row, left = 118, 17, 20
    x = {package: left + width * place for place, package in enumerate(packages)}
    height, total = 60 + row * len(walk), left * 2 + width * len(packages) + 230
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" {FONT}>',
        f'<rect width="{total}" height="{height}" fill="#ffffff"/>',
    ]
    for package in packages:
        lines.append(f'<text x="{x[package]}" y="24" font-weight="bold" fill="#1f2937">{escape(package)}</text>')
        lines.append(f'<line x1="{x[package]}" y1="32" x2="{x[package]}" y2="{height - 10}" stroke="#e5e7eb"/>')
    points = [(x[_package(visit.file)], 48 + row * place) for place, visit in enumerate(walk)]
    path = " ".join(f"{at},{y}" for at, y in points)
    lines.append(f'<polyline points="{path}" fill="none" stroke="#93c5fd" stroke-width="1.5"/>')
    for (at, y), visit in zip(points, walk, strict=True):
        name = Path(visit.file).stem
        more = f" +{len(visit.functions) - 1}" if len(visit.functions) > 1 else ""
        label = f"{name}: {visit.functions[0].rpartition('.<locals>.')[2]}{more}"
        lines.append(f'<circle cx="{at}" cy="{y}" r="3" fill="#2563eb"/>')
        lines.append(f'<text x="{at + 7}" y="{y + 4}" {LABEL}>{escape(label)}</text>')
    return "\n".join([*lines, "</svg>\n"])


def _package(file: str) -> str:
    return str(Path(file).parent)


def main() -> None:
    """Record, print and draw the walk; with --max, exit 1 where it changes file more often."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--max", type=int, help="the most changes of file that are allowed")
    # The way that every call can take, by the rules on tools alone: a profile adds what each of its parts asks about.
    parser.add_argument("--policy", default="default.yaml", help="a file of policies/ (default: %(default)s)")
    parser.add_argument("--no-picture", action="store_true", help="only print the walk")
    parser.add_argument("--cache", type=Path, help="the cache of a state folder: detectors that are compiled already")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stretches = record(Path(folder), flags.policy, flags.cache)
    walk = min(walks(stretches, "proxy/"), key=len)
    for visit in walk:
        print(f"{visit.file:40} {' '.join(visit.functions)}")
    changes = len(walk) - 1
    print(f"\none allowed call: {changes} changes of file over {len({visit.file for visit in walk})} files of proxy/")
    whole = min(walks(stretches, ""), key=len)
    print(f"with addons/: {len(whole) - 1} changes over {len({visit.file for visit in whole})} files")
    if not flags.no_picture:
        PICTURE.write_text(draw(walk))
    if flags.max is not None and changes > flags.max:
        raise SystemExit(f"{changes} changes of file; at most {flags.max} are allowed")


if __name__ == "__main__":
    main()
