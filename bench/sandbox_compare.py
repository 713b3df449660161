"""The same acts on the same machine by the same ordinary user: bare, in srt, and by `interlock run`.

`make sandbox-compare`, or `python -m bench.sandbox_compare --srt FOLDER [--json] [WAY…]`. As root, all is done as
nobody. The acts are those of tests/sandbox/acts.py; srt is taken from npm, into a folder outside of the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from bench.sandbox_ways import ALLOW, WAYS, Place, Way, install_srt
from proxy.sandbox.process_reaper import descendants
from tests.confine.ordinary import NOBODY
from tests.sandbox import acts
from tests.sandbox.machine import Machine, a_machine
from tests.servers.asking import CLIENTS
from tests.support.confine_fixture import addresses
from tests.support.harness import start_interlock
from tests.support.node_tools import MODULES, NODE
from tests.support.processes import REPOSITORY
from tests.support.trail_reader import read_trail

LIMIT = 100.0
GONE = 5.0  # what is left so long after its launcher was killed is left behind
STARTS = 7
MISBEHAVIOUR = ("secrets", "home", "files", "network")
ESCAPES = ("processes", "kernel")
ASKING = [sys.executable, str(REPOSITORY / "tests" / "servers" / "asking.py")]
FILES = MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
CACHES = (".cache/node", ".cache/uv", ".local/share/uv/tools", ".npm")
CHANGES = ("renamed", "made", "replaced")
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
ELSEWHERE = "http://198.51.100.7/"  # a host that nobody grants
type Row = dict[str, str]


class Server:
    """A server by one way, with a client on its stdin and stdout."""

    def __init__(self, place: Place, way: Way, command: Sequence[str]) -> None:
        self.errors = place.settings / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                way.words(place, command),
                cwd=place.root,
                env=place.environ(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._buffer, self._last = b"", 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; return its answer."""
        assert self.process.stdin
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            found: dict[str, Any] = json.loads(self._line())
            if "method" in found:
                self._refuse(found)
            elif found.get("id") == self._last:
                return found

    def _refuse(self, request: dict[str, Any]) -> None:
        """Refuse what the server asks the client for (sampling, elicitation, roots): it waits for an answer else."""
        if "id" in request:
            assert self.process.stdin
            error = {"code": -32601, "message": "this client does not do that"}
            self.process.stdin.write(
                json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode() + b"\n"
            )
            self.process.stdin.flush()

    def tell(self, method: str) -> None:
        """Send a notification."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")
        self.process.stdin.flush()

    def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool; return the text of its answer."""
        return str(self.ask("tools/call", name=tool, arguments=arguments)["result"]["content"][0]["text"])

    def _line(self) -> bytes:
        assert self.process.stdout
        deadline = time.monotonic() + LIMIT
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError(f"no answer: {self.errors.read_text(errors='replace')[-2000:]}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        end(self.process.pid, *descendants(self.process.pid))
        self.process.wait()
        self.process.stdout.close()


class Page(http.server.BaseHTTPRequestHandler):
    """The page of an allowed host."""

    def do_GET(self) -> None:
        """Say that it was reached."""
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"there")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def a_page(address: str) -> Iterator[tuple[str, int]]:
    """Serve a page on one address; yield it with its port."""
    with http.server.ThreadingHTTPServer((address, 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address, server.server_port
        server.shutdown()


def say(text: str) -> None:
    """Tell how far it is, on stderr: the table is on stdout."""
    sys.stderr.write(f"{text}\n")


def end(*pids: int) -> None:
    """Kill processes that this run started."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def placed(base: Place) -> Iterator[tuple[Machine, Place]]:
    """Make a new home with secrets, and a server's place in it."""
    with a_machine(base.settings) as machine:
        settings = machine.folder / "settings"
        settings.mkdir()
        for cache in CACHES:  # every home has them
            (machine.home / cache).mkdir(parents=True)
        yield machine, replace(base, home=machine.home, root=machine.root, settings=settings)


def acted(base: Place, way: Way) -> dict[str, dict[str, str]]:
    """Run all acts by one way; return what became of each."""
    with placed(base) as (machine, place):
        report = machine.root / "report.json"
        given = json.dumps({**machine.given(), "report": str(report)})
        readable = replace(place, readable=machine.home / "readable")
        server = [sys.executable, str(REPOSITORY / "tests" / "sandbox" / "acts.py"), given]
        words = [sys.executable, "-m", "tests.sandbox.equipped", *way.words(readable, server)]
        done = subprocess.run(
            words,
            cwd=machine.root,
            env=place.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            start_new_session=True,
        )
        if not report.exists():
            raise RuntimeError(f"{way.title} gave no report: {done.stderr[-2000:]}")
        found: dict[str, dict[str, str]] = json.loads(report.read_text())
        # What was done to a home of its own, such as an empty one in memory, did not happen to the user's.
        found["home"] = {act: acts.DONE if act in machine.changes() else "nothing changed" for act in found["home"]}
        if "tcp" not in machine.heard():  # a connection that ends at the launcher's own forwarder reached nobody
            found["network"] |= {act: "nobody heard it" for act in found["network"] if act.startswith("reaches")}
        return found


def hidden(base: Place, way: Way, change: str) -> bool:
    """Return whether a secret stays hidden while the host renames, makes or replaces its folder."""
    with placed(base) as (machine, place), Server(place, way, ASKING) as server:
        secrets, shown = machine.home / ".ssh", machine.home / "shown"
        server.call("process")  # the sandbox is up
        target = secrets / "id_ed25519"
        if change == "renamed":
            secrets.rename(shown)
            target = shown / "id_ed25519"
        elif change == "made":
            target = machine.home / ".docker" / "config.json"
            target.parent.mkdir()
            target.write_text("made later")
        else:
            shutil.rmtree(secrets)
            secrets.mkdir()
            target.write_text("made later")
        return server.call("read", path=str(target)) not in ("secret", "made later")


def left_behind(base: Place, way: Way) -> str:
    """Kill a launcher; say what it left: processes, and files that were not there."""
    with placed(base) as (machine, place):
        before = set(machine.folder.rglob("*"))
        with Server(place, way, ASKING) as server:
            server.call("linger")
            below = descendants(server.process.pid)
            started = set(machine.folder.rglob("*"))
            end(server.process.pid)
            deadline = time.monotonic() + GONE
            while (left := [pid for pid in below if alive(pid)]) and time.monotonic() < deadline:
                time.sleep(0.05)
            end(*left)
        own = {path for path in started if path.is_relative_to(place.settings)}
        files = {path for path in machine.folder.rglob("*") if path not in before and path not in own}
    return (
        ", ".join(f"{len(found)} {what}" for what, found in (("processes", left), ("files", files)) if found)
        or "nothing"
    )


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def clients(base: Place, way: Way, address: str, port: int) -> list[str]:
    """Return the HTTP clients that reach an allowed host."""
    asked = replace(base, hosts=(f"{address}:{port}",), programs=("curl", "node"))
    with placed(asked) as (_, place), Server(place, way, ASKING) as server:
        url = f"http://{address}:{port}/"
        return [client for client in CLIENTS if "there" in server.call("fetch", client=client, url=url)]


def denials(base: Place, way: Way) -> tuple[int, int]:
    """Let calls do what is refused; return how many denials name call, path and rule, and of how many."""
    asked = replace(base, traced=True, programs=("curl",))
    with placed(asked) as (machine, place):
        tried: list[tuple[str, dict[str, str], str]] = [
            ("read", {"path": str(machine.home / acts.SECRETS[0])}, acts.SECRETS[0]),
            ("read", {"path": str(machine.outside / "secret")}, "outside/secret"),
            ("write", {"path": str(machine.home / ".bashrc"), "text": "x"}, ".bashrc"),
            ("write", {"path": str(machine.outside / "new"), "text": "x"}, "outside/new"),
            ("connect", {"path": str(machine.folder / "service.sock")}, "a unix socket"),
            ("fetch", {"client": "http.client", "url": ELSEWHERE}, "198.51.100.7"),
        ]
        state = place.settings / "state"
        with Server(replace(place, state=state), way, ASKING) as server:
            server.ask("initialize", **INITIALIZE)
            for tool, arguments, _ in tried:
                server.call(tool, **arguments)
        refused = list(refusals(read_trail(state))) if state.exists() else []
        named = [
            target for tool, _, target in tried if any(tool == called and target in what for called, what in refused)
        ]
        said = server.errors.read_text(errors="replace")
        say(f"named with call and rule: {named}; on stderr: {[target for *_, target in tried if target in said]}")
        return len(named), len(tried)


def refusals(events: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each refused act that a trail ties to a call and to a line of the profile: the tool, and the target."""
    for event in events:
        if event.get("call_id"):
            acts_of_event = (
                [event["detail"]] if event["kind"] == "act_refused" else event.get("detail", {}).get("violations", [])
            )
            yield from ((event["tool"], act["target"]) for act in acts_of_event if act.get("line"))


def starts(base: Place, ways: Sequence[Way]) -> list[float]:
    """Return the milliseconds from start to the first answer of the filesystem server, the median; ways in turns."""
    taken: list[list[float]] = [[] for _ in ways]
    with placed(base) as (_, place):
        for turn in range(STARTS + 1):
            for number, way in enumerate(ways):
                began = time.perf_counter()
                with Server(place, way, [str(NODE.resolve()), str(FILES.resolve()), str(place.root)]) as server:
                    server.ask("initialize", **INITIALIZE)
                    if turn:  # the first start of each warms caches
                        taken[number].append((time.perf_counter() - began) * 1000)
    return [statistics.median(each) for each in taken]


def count(found: dict[str, dict[str, str]], kinds: Sequence[str]) -> str:
    """Return how many acts happened."""
    became = [value for kind in kinds for value in found[kind].values()]
    return f"{became.count(acts.DONE)} of {len(became)}"


def measured(base: Place, way: Way, page: tuple[str, int] | None) -> Row:
    """Return one way's column, but for its start."""
    found = acted(base, way)
    happened = {kind: [act for act, became in found[kind].items() if became == acts.DONE] for kind in acts.ACTS}
    say(f"happened: {json.dumps(happened)}")
    column = {
        "misbehaving acts that happened": count(found, MISBEHAVIOUR),
        "attempts to escape that worked": count(found, ESCAPES),
        "secrets read": count(found, ["secrets"]),
        "changes of the home": count(found, ["home"]),
        "what is allowed works": count(found, ["honest"]),
        "still hidden when the host renames, makes or replaces it": hides(base, way) if way.hides else "–",
        "left behind by SIGKILL": left_behind(base, way),
    }
    if page is not None:
        column["HTTP clients that reach an allowed host"] = f"{len(clients(base, way, *page))} of {len(CLIENTS)}"
    named, tried = denials(base, way) if way.tells else (0, 0)
    column["denials that name call, path and rule"] = f"{named} of {tried}" if tried else "–"
    return column


def table(base: Place, names: Sequence[str], page: tuple[str, int] | None) -> dict[str, Row]:
    """Return the table by its rows."""
    columns: dict[str, Row] = {}
    for name in names:
        say(f"{name} …")
        columns[name] = measured(base, WAYS[name], page)
    say("starts …")
    for name, taken in zip(names, starts(base, [WAYS[each] for each in names]), strict=True):
        columns[name]["first answer of the filesystem server, ms"] = f"{taken:.0f}"
    return {row: {name: columns[name][row] for name in names} for row in columns[names[0]]}


def hides(base: Place, way: Way) -> str:
    """Return how often a secret stays hidden."""
    return f"{sum(hidden(base, way, change) for change in CHANGES)} of {len(CHANGES)}"


def printed(rows: dict[str, Row], names: Sequence[str]) -> str:
    """Return the table as Markdown."""
    lines = [["", *(WAYS[name].title for name in names)], ["---"] * (len(names) + 1)]
    lines += [[row, *(values[name] for name in names)] for row, values in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_nobody(arguments: Sequence[str]) -> int:
    """Run it as a user who is nobody in particular, in a folder of that user's; return the exit code."""
    module = ["-m", "tests.confine.ordinary", sys.executable, "-m", "bench.sandbox_compare"]
    with tempfile.TemporaryDirectory(prefix="interlock-compare-", dir="/home") as folder:
        os.chown(folder, NOBODY, NOBODY)
        words = [sys.executable, *module, *arguments, "--folder", folder]
        return subprocess.run(words, cwd=REPOSITORY, check=False).returncode


def main() -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--srt", type=Path, default=Path("/var/tmp/interlock-srt"), help="where srt is, or is installed"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path.home(), help="where homes are made for it; root: below /home"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; default: all")
    asked = parser.parse_args()
    names = asked.ways or list(WAYS)
    if any(name.startswith("srt") for name in names):
        install_srt(asked.srt)
    if os.geteuid() == 0:
        sys.exit(as_nobody(sys.argv[1:]))
    address = next((each for each in addresses() if ":" not in each), None)
    with a_machine(asked.folder) as machine, contextlib.ExitStack() as stack:
        page = stack.enter_context(a_page(address)) if address else None
        hosts = f"egress: {{default: allow, rules: [{{id: own, action: allow, hosts: ['{address}']}}]}}"
        proxy = stack.enter_context(start_interlock(machine.folder / "proxy", policy=f"{ALLOW}{hosts}\n"))
        base = Place(machine.home, machine.root, proxy.state_dir, machine.folder, asked.srt)
        rows = table(base, names, page)
    sys.stdout.write(f"{json.dumps(rows) if asked.json else printed(rows, names)}\n")


if __name__ == "__main__":
    main()
