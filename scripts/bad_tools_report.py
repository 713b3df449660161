"""How many tools are named HIGH, or stopped in a sandbox or at the gate: `python scripts/bad_tools_report.py MATERIAL`.

The material is a folder, of which each Python file is a sample for `scripts/serve_sample.py` (`--python` is an
interpreter with the libraries that they import), or a list in YAML of servers that start themselves:

    servers:
      - name: notes_1
        command: [python, /tmp/notes/server.py]
        folder: /tmp/notes
        bad: [read_note]
        attacks: {read_note: [{id: ../secret}]}

`bad` names the tools that count (without it, all do), `folder` is what the sandbox lets it read, and `attacks` what the
material's own documents say to try. The material stays outside of the repository: what is in the tests cannot measure
anything. Both the probe and the sandbox try honest inputs and those of a malicious caller. A tool counts as stopped
where the sandbox refused an act in one of its calls, or ended it. Its profile is the least one: the interpreter, a
folder of its own, no network.

At the gate there is no sandbox and no tracer, only a profile of policies. A tool counts as stopped there if it is not
shown; or if each of its `attacks` is refused, held, withheld, or its result has something cut out or masked. Without
any, its honest inputs are played, of which one is enough: such a tool is the attack. `--honest` is for material of good
tools: it says how many of them are HIGH, and how many of their calls a profile refuses or changes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import string
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
    from collections.abc import Iterator, Mapping, Sequence

SERVE_SAMPLE = str(REPOSITORY / "scripts" / "serve_sample.py")
LIMITS = {"memory": "1GB", "cpu": "20s", "processes": 100, "file_size": "100MB"}
LIMIT = 1500.0
PROFILES = ("balanced", "strict")
OWN_NETWORK = re.compile(r"/proc/(?:[0-9]+/|self/)?net/")


@dataclass(frozen=True)
class Sample:
    """A server of the material. A file is copied into the folder that the sandbox grants; `bad` is None for all."""

    name: str
    command: tuple[str, ...]
    file: Path | None = None
    folder: str | None = None
    bad: frozenset[str] | None = None
    attacks: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

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
    gates: Mapping[str, Played]

    def held(self, *profiles: str) -> bool:
        """Return whether the gate stops it with one of these profiles."""
        return any(self.gates[each].stops for each in profiles if each in self.gates)


@dataclass(frozen=True)
class Played:
    """What became of a tool's calls at the gate."""

    calls: int
    contained: int  # refused, held or withheld, or with something cut out or masked in the result
    attacks: bool  # whether these were attacks that the material gives
    shown: bool = True

    @property
    def stops(self) -> bool:
        if not self.shown:
            return True
        return bool(self.contained) and (not self.attacks or self.contained == self.calls)


def material(place: Path, python: str) -> list[Sample]:
    """Return the servers of a folder or of a list."""
    if place.is_dir():
        return [Sample(each.name, (python, SERVE_SAMPLE, str(each)), each) for each in sorted(place.glob("*.py"))]
    listed = YAML(typ="safe").load(place.read_text())["servers"]
    return [
        Sample(
            each["name"],
            tuple(each["command"]),
            None,
            each["folder"],
            frozenset(each["bad"]) if "bad" in each else None,
            each.get("attacks", {}),
        )
        for each in listed
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
    # A trace that is not complete says nothing of a tool.
    high = [each for each in report["findings"] if each["severity"] == "high" and each["rule"] != "trace-incomplete"]
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


def at_gate(folder: Path, sample: Sample, tools: Sequence[str], profile: str) -> dict[str, Played]:
    """Call tools behind the gate alone, in one session: what one of them gives labels all that comes after it."""
    home, root, state = (folder / name for name in ("home", "root", "state"))
    root.mkdir(parents=True)
    (home / "documents").mkdir(parents=True)
    for name in ("notes.txt", "b.txt"):
        (root / name).write_text("notes\n")
    state.mkdir()
    seed_cache(state)
    # Folders of the machine, as a user has them: some rules of the profiles are about those of the machine itself.
    place = Place(home, root, state, folder, folder)
    (root / "interlock.yaml").write_text(f"profile: {profile}\n")
    samples = SampleFiles(str(root / "notes.txt"), str(root / "b.txt"), str(root), str(root), str(root / "new.txt"))
    with Server(place, Way("gate", behind_gate), sample.words(root)) as server:
        server.ask("initialize", **INITIALIZE)
        server.tell("notifications/initialized")
        listed = {str(each["name"]): each for each in server.ask("tools/list")["result"]["tools"]}
        calls = {tool: sample.attacks.get(tool) or honest_calls(listed.get(tool), samples) for tool in tools}
        for tool in tools:
            if not called(server, tool, calls[tool]):
                break  # it has ended
    trail = read_trail(state)
    return {
        tool: Played(
            len(calls[tool]),
            min(contained(trail, tool), len(calls[tool])),
            tool in sample.attacks,
            not hides(trail, tool),
        )
        for tool in tools
    }


def honest_calls(tool: dict[str, Any] | None, samples: SampleFiles) -> list[dict[str, Any]]:
    """Return the arguments of an honest caller; none for a tool that is not shown."""
    return [each.arguments for each in synthesise(tool, samples)] if tool else []


def behind_gate(place: Place, command: Any) -> list[str]:
    """Return the command of a server behind the gate alone; the profile is in the folder that it is started in.

    Its variables hold a token and a password, as those of a user do.
    """
    token = "ghp_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(36))
    held = [f"GITHUB_TOKEN={token}", f"DB_PASSWORD={secrets.token_urlsafe(12)}"]
    return ["/usr/bin/env", *held, *INTERLOCK, "run", "--state-dir", str(place.state), "--trace", "off", "--", *command]


def hides(events: list[dict[str, Any]], tool: str) -> bool:
    """Return whether a tool was left out of the list, or the definition of it refused."""
    kinds = ("injection_found", "hidden_characters")
    return any(
        event["kind"] in kinds and event.get("decision") == "deny" and event.get("tool") == tool
        for event in events
        if not event.get("call_id")
    )


def contained(events: list[dict[str, Any]], tool: str) -> int:
    """Return how many calls of a tool were refused, held or withheld, or lost something of their results."""
    found = set()
    for event in events:
        if event.get("tool") != tool or not event.get("call_id"):
            continue
        masked = [each for each in event.get("redactions") or () if each["path"].startswith(("result", "error"))]
        cut = event["kind"] == "injection_found" and event["detail"]["action"] in ("strip", "withhold")
        if event.get("decision") not in (None, "allow") or (event["kind"] == "completed" and masked) or cut:
            found.add(event["call_id"])
    return len(found)


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


@contextlib.contextmanager
def told(sample: Sample) -> Iterator[None]:
    """Say what went wrong with a server, and go on: what else is known of it still counts."""
    try:
        yield
    except (subprocess.TimeoutExpired, RuntimeError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{sample.name}: {error}\n")


def judged(sample: Sample, *, honest: bool) -> list[Outcome]:
    """Probe a server, and run it in a sandbox and behind the gate, as far as the probe does not name its tools HIGH."""
    with tempfile.TemporaryDirectory(prefix="interlock-bad-", dir=Path.home()) as made:
        folder = Path(made)
        for state in ("probe", "state"):  # a first start compiles patterns for seconds
            seed_cache(folder / state)
        tools, high, held = sorted(sample.bad or [sample.name]), set[str](), set[str]()
        gates: dict[str, dict[str, Played]] = {}
        with told(sample):
            tools, high = probed(folder, sample)
        left = [tool for tool in tools if tool in (sample.bad or tools) and (honest or tool not in high)]
        with told(sample):
            held = stopped(folder, sample) if left and not honest else set()
        # Attacks are played one by one, each in a session of its own; honest use is one session.
        for number, group in enumerate([left] if honest else [[tool] for tool in left]):
            for profile in PROFILES:
                with told(sample):
                    for tool, became in at_gate(folder / f"{number}-{profile}", sample, group, profile).items():
                        gates.setdefault(tool, {})[profile] = became
    counted = [tool for tool in tools if sample.bad is None or tool in sample.bad]
    found = [Outcome(sample.name, tool, tool in high, tool in held, gates.get(tool, {})) for tool in counted]
    for absent in sorted((sample.bad or frozenset()) - set(tools)):
        sys.stderr.write(f"{sample.name} {absent}: is not there\n")
    for each in found:
        sys.stderr.write(f"{each.server} {each.tool}: {word(each)}\n")
    return found


def word(outcome: Outcome) -> str:
    """Return what became of a tool, in words."""
    gates = [
        f"{profile}: {'not shown' if not each.shown else f'{each.contained} of {each.calls} calls'}"
        for profile, each in outcome.gates.items()
        if each.contained or not each.shown
    ]
    said = "HIGH" if outcome.high else "stopped" if outcome.stopped else "" if gates else "nothing"
    return ", ".join(each for each in (said, *gates) if each)


def figures(found: list[Outcome]) -> str:
    """Return the columns for some tools: each tool counts in the first that it fits."""
    sums = {
        "HIGH": sum(each.high for each in found),
        "stopped in the sandbox": sum(each.stopped and not each.high for each in found),
        "at the gate, balanced": sum(each.held("balanced") and not each.high and not each.stopped for each in found),
        "only with strict": sum(
            each.held("strict") and not each.held("balanced") and not each.high and not each.stopped for each in found
        ),
    }
    return (
        f"{len(found)} tools: " + ", ".join(f"{n} {name}" for name, n in sums.items()) + f"; sum {sum(sums.values())}"
    )


def honest_figures(found: list[Outcome]) -> str:
    """Return how many honest tools are HIGH, and how many of their calls each profile refuses or changes."""
    sums = []
    for profile in PROFILES:
        played = [each.gates[profile] for each in found if profile in each.gates]
        refused, hidden = sum(each.contained for each in played), sum(not each.shown for each in played)
        sums.append(f"{profile} refuses or changes {refused} of {sum(p.calls for p in played)} calls, hides {hidden}")
    return f"{len(found)} tools: {sum(each.high for each in found)} HIGH; {'; '.join(sums)}"


def main() -> None:
    """Judge every server of the material; print the figures, by the word that their names begin with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("material", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--honest", action="store_true", help="the material is good tools")
    asked = parser.parse_args()
    with ThreadPoolExecutor(asked.jobs) as pool:
        judging = partial(judged, honest=asked.honest)
        found = [each for one in pool.map(judging, material(asked.material, asked.python)) for each in one]
    kinds: dict[str, list[Outcome]] = {}
    for each in found:
        kinds.setdefault(each.server.partition("_")[0], []).append(each)
    say = honest_figures if asked.honest else figures
    for kind in sorted(kinds):
        sys.stdout.write(f"{kind}: {say(kinds[kind])}\n")
    sys.stdout.write(f"all: {say(found)}\n")


if __name__ == "__main__":
    main()
