"""How many tools are named HIGH by the probe, or stopped in a sandbox: `python scripts/bad_tools_report.py MATERIAL`.

The material is a folder, of which each Python file is a sample for `scripts/serve_sample.py` (`--python` is an
interpreter with the libraries that they import), or a list in YAML of servers that start themselves:

    servers:
      - {name: notes_1, command: [python, /tmp/notes/server.py], folder: /tmp/notes, bad: [read_note]}

`bad` names the tools that count, `folder` is what the sandbox lets it read. The material stays outside of the
repository: what is in the tests cannot measure anything. Both the probe and the sandbox try honest inputs and those of
a malicious caller. A tool counts as stopped where the sandbox refused an act in one of its calls, or ended it. The
profile is the least one: the interpreter, a folder of its own, no network.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.sandbox_compare import INITIALIZE, Server, refusals  # noqa: E402  after the path
from bench.sandbox_ways import INTERLOCK, Place, Way  # noqa: E402
from proxy.probe.hostile import Bait, attempts, bait_files, crowds, marker  # noqa: E402
from proxy.probe.synthesise import SampleFiles, synthesise  # noqa: E402
from proxy.sandbox.stand_ins import STAND_INS  # noqa: E402
from tests.sandbox.acts import SECRETS  # noqa: E402
from tests.support.harness import seed_cache  # noqa: E402
from tests.support.trail_reader import read_trail  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVE_SAMPLE = str(REPOSITORY / "scripts" / "serve_sample.py")
LIMITS = {"memory": "1GB", "cpu": "20s", "processes": 100, "file_size": "100MB"}
LIMIT = 1500.0
OWN_NETWORK = re.compile(r"/proc/(?:[0-9]+/|self/)?net/")


@dataclass(frozen=True)
class Sample:
    """A server of the material. A file is copied into the folder that the sandbox grants; `bad` is None for all."""

    name: str
    command: tuple[str, ...]
    file: Path | None = None
    folder: str | None = None
    bad: frozenset[str] | None = None

    def words(self, root: Path) -> list[str]:
        """Return the command that starts it in the sandbox, where its file is in `root`."""
        if self.file is None:
            return list(self.command)
        (root / self.file.name).write_text(self.file.read_text())
        return [*self.command[:-1], str(root / self.file.name)]


@dataclass(frozen=True)
class Outcome:
    """What became of one tool."""

    server: str
    tool: str
    high: bool
    stopped: bool


def material(place: Path, python: str) -> list[Sample]:
    """Return the servers of a folder or of a list."""
    if place.is_dir():
        return [Sample(each.name, (python, SERVE_SAMPLE, str(each)), each) for each in sorted(place.glob("*.py"))]
    listed = YAML(typ="safe").load(place.read_text())["servers"]
    return [
        Sample(each["name"], tuple(each["command"]), None, each["folder"], frozenset(each["bad"])) for each in listed
    ]


def probed(folder: Path, sample: Sample) -> tuple[list[str], set[str]]:
    """Return a server's tools, and those that the probe names HIGH; a finding about the server is about all of them."""
    flags = ["--json", "--hostile", "--call-timeout", "5", "--state-dir", str(folder / "probe")]
    words = [*INTERLOCK, "probe", *flags, "--", *sample.command]
    # A folder that a probe lets it write to, as servers have one: some keep a database where they are started, and
    # some look at what lies there.
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with tempfile.TemporaryDirectory(prefix="work-") as place:
        for name in ("README.md", "app.py", "notes.txt"):
            (Path(place) / name).write_text("# notes\n")
        done = subprocess.run(words, cwd=place, env=environ, capture_output=True, text=True, timeout=LIMIT, check=False)
    if not done.stdout.strip():
        sys.stderr.write(f"  {sample.name} was not probed: {done.stderr[-300:]}\n")
        return sorted(sample.bad or ()), set()
    report = json.loads(done.stdout)
    for finding in report["findings"]:
        sys.stderr.write(f"  {sample.name} {finding['severity']} {finding['rule']}\n")
    tools = [str(tool["name"]) for tool in report["tools"]]
    high = [finding for finding in report["findings"] if finding["severity"] == "high"]
    if any(not finding.get("tool") for finding in high):
        return tools, set(tools)
    return tools, {str(finding["tool"]) for finding in high} | {str(t) for f in high for t in f.get("tools", [])}


def sandboxed(sample: Sample, place: Place, command: Any) -> list[str]:
    """Return the command of a server in the least sandbox, traced, so that what is refused is told."""
    runtime = "node" if Path(sample.command[0]).name == "node" else "python"
    readable = ["$PACKAGE", *([sample.folder, str(Path(SERVE_SAMPLE).parent)] if sample.folder else [])]
    lines = {"extends": [runtime], "read": readable, "write": [str(place.root), "$TMP"], "limits": LIMITS}
    profile, policy = place.written("profile.yaml", lines), place.written("policy.yaml", "version: 1\ndefault: allow\n")
    flags = ["--state-dir", str(place.state), "--policy", policy, "--trace", "require", f"--sandbox={profile}"]
    return [*INTERLOCK, "run", *flags, "--", *command]


def calls_for(tool: dict[str, Any], samples: SampleFiles, bait: Bait) -> list[dict[str, Any]]:
    """Return the arguments of honest and of malicious callers."""
    honest = (*synthesise(tool, samples), *crowds(tool, samples))
    return [*(each.arguments for each in honest), *(each.arguments for each in attempts(tool, samples, bait))]


def stopped(folder: Path, sample: Sample) -> set[str]:
    """Call every tool of a server in its sandbox; return those that were stopped."""
    home, root = folder / "home", folder / "root"
    for name in (*SECRETS, "documents/notes.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    root.mkdir()
    (root / "notes.txt").write_text("notes")
    samples = SampleFiles(str(root / "notes.txt"), str(root / "b.txt"), str(root), str(root), str(root / "new.txt"))
    token = marker()
    for name, text in bait_files(token).items():
        (root / name).write_text(text)
    bait = Bait(str(home / SECRETS[0]), tuple(str(root / name) for name in bait_files(token)), token)
    place = Place(home, root, folder / "state", folder, folder)
    # The sample's own file is its package; its interpreter's is the preset's.
    words, found, left = sample.words(root), set[str](), None
    while left is None or left:
        with Server(place, Way("sandbox", partial(sandboxed, sample)), words) as server:
            server.ask("initialize", **INITIALIZE)
            server.tell("notifications/initialized")
            listed = server.ask("tools/list")["result"]["tools"]
            left = listed if left is None else left
            while left:
                tool = left.pop(0)
                if not called(server, str(tool["name"]), calls_for(tool, samples, bait)):
                    found.add(str(tool["name"]))
                    break  # it has ended: the tools that are left need another
    trail = read_trail(place.state)
    return found | {tool for tool, _ in refusals(trail)} | set(shown_its_own(trail))


def called(server: Server, tool: str, inputs: list[dict[str, Any]]) -> bool:
    """Call a tool with every input; return False if its limits ended the server."""
    for arguments in inputs:
        try:
            server.ask("tools/call", name=tool, arguments=arguments)
        except (RuntimeError, OSError):
            return False
    return True


def shown_its_own(events: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the tools that asked for the machine's accounts, hosts or connections, and got the sandbox's own."""
    for event in events:
        opened = [act.get("path") or "" for act in event.get("detail", {}).get("observations", [])]
        if event.get("call_id") and any(path in STAND_INS or OWN_NETWORK.match(path) for path in opened):
            yield event["tool"]


def judged(sample: Sample) -> list[Outcome]:
    """Probe a server, and run it in a sandbox. Where the sandbox cannot be asked, what the probe says still counts."""
    with tempfile.TemporaryDirectory(prefix="interlock-bad-", dir=Path.home()) as made:
        folder = Path(made)
        for state in ("probe", "state"):  # a first start compiles patterns for seconds
            seed_cache(folder / state)
        tools, high, held = sorted(sample.bad or [sample.name]), set[str](), set[str]()
        try:
            tools, high = probed(folder, sample)
            held = stopped(folder, sample) if set(sample.bad or tools) - high else set()
        except (subprocess.TimeoutExpired, RuntimeError, OSError, ValueError, KeyError) as error:
            sys.stderr.write(f"{sample.name}: {error}\n")
    counted = [tool for tool in tools if sample.bad is None or tool in sample.bad]
    found = [Outcome(sample.name, tool, tool in high, tool in held) for tool in counted]
    for absent in sorted((sample.bad or frozenset()) - set(tools)):
        sys.stderr.write(f"{sample.name} {absent}: is not there\n")
    for each in found:
        word = "HIGH" if each.high else "stopped" if each.stopped else "nothing"
        sys.stderr.write(f"{each.server} {each.tool}: {word}\n")
    return found


def main() -> None:
    """Judge every server of the material; print the figures, by the word that their names begin with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("material", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    with ThreadPoolExecutor(asked.jobs) as pool:
        found = [each for one in pool.map(judged, material(asked.material, asked.python)) for each in one]
    kinds = {each: each.server.partition("_")[0] for each in found}
    total, high = Counter(kinds.values()), Counter(kinds[each] for each in found if each.high)
    caught = Counter(kinds[each] for each in found if each.high or each.stopped)
    for kind in sorted(total):
        sys.stdout.write(f"{kind}: {total[kind]} tools, {high[kind]} HIGH, {caught[kind]} HIGH or stopped\n")
    sys.stdout.write(f"all: {total.total()} tools, {high.total()} HIGH, {caught.total()} HIGH or stopped\n")


if __name__ == "__main__":
    main()
