"""The benchmarks themselves: their arithmetic, what they read and draw, and that they can be believed."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import chart, goals, payloads, proc, report, workloads
from bench.clients import LoadError, run_load
from bench.contenders import INTERLOCK, Contender, World, direct
from bench.histogram import Histogram
from bench.install import Installed
from bench.load import Spec
from bench.processes import StartError, started, wait_until
from bench.sandbox_compare import Server
from bench.sandbox_ways import WAYS, Place
from bench.servers import servers
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail

SVG = "{http://www.w3.org/2000/svg}"


def rounds(**figures: list[float]) -> dict[str, object]:
    turns = [dict(zip(figures, values, strict=True)) for values in zip(*figures.values(), strict=True)]
    return {**{name: sorted(values)[len(values) // 2] for name, values in figures.items()}, "rounds": turns}


def results() -> dict[str, dict[str, object]]:
    """Return results that meet every goal."""
    return {
        "tls-32": {
            "mitmdump": rounds(rate=[100, 50, 100], cpu_us=[1000, 1000, 1000], p50_ms=[9, 9, 9], p99_ms=[9, 9, 9]),
            "empty": rounds(rate=[900, 900, 900], cpu_us=[40, 40, 40], p50_ms=[4, 4, 4], p99_ms=[5, 5, 5]),
            "interlock": rounds(rate=[460, 230, 460], cpu_us=[190, 190, 190], p50_ms=[4, 4, 4], p99_ms=[5, 5, 5]),
        },
        "tls-sse-32": {"mitmdump": rounds(cpu_us=[1000]), "interlock": rounds(cpu_us=[240])},
        "tls-large-32": {"mitmdump": rounds(cpu_us=[1000]), "interlock": rounds(cpu_us=[290])},
        "gateways": {
            "direct": {"p50_ms": 1.0, "p99_ms": 2.0, "cpu_us": None},
            "interlock": {"p50_ms": 2.0, "p99_ms": 3.0, "cpu_us": 900.0},
            "fastmcp": {"p50_ms": 61.0, "p99_ms": 70.0, "cpu_us": 30000.0},
            "contextforge": {"p50_ms": 81.0, "p99_ms": 90.0, "cpu_us": 60000.0},
        },
        "workers": {
            "1 worker": rounds(busiest_us=[500, 500], p99_ms=[50, 50]),
            "2 workers": rounds(busiest_us=[260, 260], p99_ms=[49, 49]),
        },
        "new-connection": {"mitmdump": rounds(cpu_us=[12000]), "interlock": rounds(cpu_us=[4700])},
        "download": {"mitmdump": {"mb_per_second": 200}, "interlock": {"mb_per_second": 310, "growth_mb": 3}},
        "memory": {"rest_mb": 90.0, "growth": 0.02, "calls": 500_000.0},
        "start": {"first_s": 2.0, "later_s": 0.7},
        "stdio": {"plain": {"p50_ms": 0.1}, "run": {"p50_ms": 0.5}, "mcp-firewall": {"p50_ms": 1.1}},
        "redaction": {"off": rounds(cpu_us=[400]), "on": rounds(cpu_us=[500])},
        "strict": {"mitmdump": rounds(cpu_us=[1000]), "strict": rounds(cpu_us=[500])},
        "part redact": {"mask 1 MB, adversarial: digits": 0.1, "mask 1 MB, adversarial: letters": 0.4},
        "part policy": {"10000 rules over 2000 tools, plain path": 9.0},
        "part trace": {"one, traced beside untraced: echo": 1.1, "one, traced beside untraced: files": 3.0},
        "part events": {"events shipped, median of the batches": 31_000.0},
        "part audit": {
            "durable acknowledgements, 32 producers": 13_000.0,
            "durable acknowledgements, 32 producers: p50": 2.0,
        },
    }


def judged(found: dict[str, dict[str, object]], left_out: dict[str, str] | None = None) -> dict[str, dict[str, object]]:
    return {goal["id"]: goal for goal in goals.judge(found, left_out or {})}


def test_goals_are_met_by_ratios_within_a_round() -> None:
    found = judged(results())
    assert {name: goal["met"] for name, goal in found.items()} == dict.fromkeys(goals.SOURCES, True)
    # One round of a busy machine halves both, and changes no ratio.
    assert found["1-throughput"]["measured"] == {
        "throughput": 4.6,
        "CPU a call": 0.19,
        "CPU a call, event streams": 0.24,
        "CPU a call, 20 KB results": 0.29,
    }
    assert found["4-workers"]["measured"]["capacity"] == pytest.approx(500 / 260, abs=1e-3)
    assert found["3-added-latency"]["measured"]["of FastMCP's"] == pytest.approx(1 / 60, abs=1e-4)
    assert found["3-added-latency"]["measured"]["`run`, of mcp-firewall's"] == pytest.approx(0.4)
    assert found["6-memory-start"]["notes"] == {"first, s": 2.0}
    assert found["7-masking"]["measured"] == {"a secret in 20 KB": 1.25, "the slowest 1 MB": 0.4}
    assert found["8-tracing-trail"]["measured"]["acknowledged"] == 13_000
    assert found["9-policy-size"]["measured"]["strict, of everything on before"] == pytest.approx(0.5 / 0.46, abs=1e-4)


def test_figures_of_single_parts_stand_beside_the_workloads_by_their_names() -> None:
    parts = {"policy": [{"name": "10000 rules over 2000 tools, plain path", "value": 16.0, "unit": "µs"}]}
    assert judged({**goals.with_parts({}, parts)})["9-policy-size"]["met"] is False


@pytest.mark.parametrize(
    ("goal", "workload", "contender", "figures"),
    [
        ("1-throughput", "tls-32", "interlock", rounds(rate=[440, 220, 440], cpu_us=[190, 190, 190])),
        ("1-throughput", "tls-sse-32", "interlock", rounds(cpu_us=[260])),
        ("2-gate-cost", "tls-32", "empty", rounds(cpu_us=[60, 60, 60])),
        ("3-added-latency", "gateways", "interlock", {"p50_ms": 5.5}),
        ("4-workers", "workers", "2 workers", rounds(busiest_us=[300, 300], p99_ms=[49, 49])),
        ("5-connections-downloads", "download", "interlock", {"mb_per_second": 310, "growth_mb": 200}),
        ("7-masking", "redaction", "on", rounds(cpu_us=[600])),
        ("8-tracing-trail", "part audit", "durable acknowledgements, 32 producers", 11_000.0),
        ("9-policy-size", "strict", "strict", rounds(cpu_us=[600])),
    ],
)
def test_one_part_past_its_bound_fails_a_goal(goal, workload, contender, figures) -> None:
    found = results()
    found[workload][contender] = figures
    assert judged(found)[goal]["met"] is False


def test_a_goal_without_figures_is_open_and_says_why() -> None:
    found = results()
    found["workers"] = {}
    del found["gateways"]["contextforge"]
    del found["start"]
    found["memory"] = {"rest_mb": 90.0, "growth": 0.02, "calls": 3000.0}
    told = judged(found, {"workers": "no --workers", "gateways: contextforge": "not installed"})
    assert {name for name, goal in told.items() if goal["met"] is None} == {
        "3-added-latency",
        "4-workers",
        "6-memory-start",
    }
    assert told["4-workers"]["reason"] == "workers: no --workers"
    assert told["3-added-latency"]["reason"] == "gateways: contextforge: not installed"
    assert "3000 calls are fewer" in told["6-memory-start"]["reason"]
    del found["strict"]
    assert judged(found)["9-policy-size"]["reason"] == "not part of this run"
    found["memory"]["growth"] = 0.5
    assert judged(found)["6-memory-start"]["met"] is False  # too much growth is too much, however few the calls


def test_a_histogram_knows_its_percentiles_within_two_percent() -> None:
    one, other = Histogram(), Histogram()
    for number in range(1, 1001):
        (one if number % 2 else other).add(number / 1000)
    one.merge(other.counts)
    assert len(one) == 1000
    assert one.quantile(0.5) == pytest.approx(0.5, rel=0.02)
    assert one.quantile(0.99) == pytest.approx(0.99, rel=0.02)
    assert Histogram().quantile(0.5) == 0.0


def test_the_chart_is_svg_for_light_and_dark_pages_with_bars_to_scale() -> None:
    drawn = chart.draw([chart.Panel("a <b>", "note", [chart.Bar("one", 50, "50"), chart.Bar("two", 100, "100", True)])])
    tree = ET.fromstring(drawn)
    widths = [float(bar.get("width", 0)) for bar in tree.iter(f"{SVG}rect")]
    assert widths[1] == pytest.approx(2 * widths[0])
    assert [bar.get("class") for bar in tree.iter(f"{SVG}rect")] == ["bar", "ours"]
    assert "prefers-color-scheme: dark" in drawn
    assert [panel.title for panel in chart.panels(results())] == [
        *("Calls a second", "CPU a call", "Added to a call", "A call over stdio")
    ]


def test_the_page_and_the_chart_say_what_the_last_whole_run_measured() -> None:
    found = json.loads(report.FULL.read_bytes())
    assert report.fill_in(report.PAGE.read_text(), found) == report.PAGE.read_text()
    assert chart.draw(chart.panels(found["workloads"])) == report.CHART.read_text()
    assert [goal["id"] for goal in found["goals"]] == list(goals.SOURCES)
    for goal in found["goals"]:
        assert goal["met"] is not None or goal["reason"]


BURN = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
while time.process_time() < 0.3: pass
print(child.pid, flush=True)
time.sleep(60)
"""


def test_proc_tells_the_time_and_memory_of_a_tree_which_ends_as_a_whole(tmp_path: Path) -> None:
    with started("burn", [sys.executable, "-c", BURN], tmp_path) as one:
        wait_until(one, lambda: one.log.read_text().endswith("\n"))
        child = int(one.log.read_text())
        assert sorted(proc.tree(one.pid)) == sorted([one.pid, child])
        used = proc.cpu_seconds(one.pid)
        assert used[one.pid] >= 0.25
        assert proc.spent({one.pid: 0.1}, used)[one.pid] == pytest.approx(used[one.pid] - 0.1)
        held = proc.tree_memory(one.pid)
        assert held.keys() == {one.pid, child}
        assert all(megabytes > 1 for megabytes in held.values())
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < deadline, "a grandchild outlived its group"
        time.sleep(0.02)
    assert one.process.returncode == -signal.SIGTERM
    assert proc.tree(one.pid) == []


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"), started("gone", [tmp_path / "nothing"], tmp_path):
        pass
    brief = [sys.executable, "-c", "raise SystemExit('no reason')"]
    with started("brief", brief, tmp_path) as one, pytest.raises(StartError, match="ended with 1: no reason"):
        wait_until(one, lambda: False)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory):
    """Return a world whose server is in Python: nginx need not be there."""
    folder, installed = tmp_path_factory.mktemp("bench"), Installed({"nginx": "not wanted"})
    with servers(folder / "servers", installed) as upstream:
        made = World(upstream, folder, installed)
        with made.stack:
            yield made


def test_a_workload_measures_the_real_proxy(world: World) -> None:
    def refuse(_world, _kind):
        raise StartError("it will not")

    contenders = (Contender("direct", "", direct), Contender("none", "", refuse), INTERLOCK)
    workload = workloads.Workload("smoke", "smoke", contenders, kind="tls", connections=4)
    said: list[str] = []
    found = workloads.run(workload, world, said.append, seconds=0.6, rounds=2)
    assert world.left_out == {"smoke: none": "it will not"}
    assert list(found) == ["direct", "interlock"]
    assert said == ["smoke: direct", "smoke: interlock", "smoke: interlock", "smoke: direct"]
    ours = workloads.as_json(found["interlock"])
    assert ours["cpu_us"] > 50
    assert ours["rate"] > 1
    assert [turn["rate"] > 0 for turn in ours["rounds"]] == [True, True]
    assert found["direct"].cpu_us is None
    state = world.kept["interlock", "tls"].state_dir
    assert state
    decided = [event for event in read_trail(state) if event["kind"] == "decided"]
    assert len(decided) >= sum(turn["calls"] for turn in ours["rounds"])  # what was measured was recorded


def test_refusals_and_answers_from_elsewhere_are_no_figures(world: World) -> None:
    wrong = Spec(world.servers.plain, "127.0.0.1", "/nowhere", seconds=5, download=True, calls=1)
    with pytest.raises(LoadError, match="405 Method Not Allowed"):
        run_load(wrong, None)
    right = Spec(world.servers.plain, "127.0.0.1", "/small.json", seconds=0.2)
    assert run_load(right, None, world.servers).calls > 0
    elsewhere = Spec(world.servers.session, "127.0.0.1", "/small.json", seconds=0.2)
    with pytest.raises(LoadError, match="came to the server"):
        run_load(elsewhere, None, world.servers)


def test_the_payloads_have_the_sizes_they_are_named_for() -> None:
    assert 300 < len(payloads.call()) < 450
    assert 380 < len(payloads.ANSWERS["/small.json"]) < 450
    assert 19_000 < len(payloads.ANSWERS["/large.json"]) < 21_000
    assert all(payloads.MARK in body[:1024] for body in payloads.ANSWERS.values())


def test_every_workload_of_the_plan_is_there_once() -> None:
    ids = [workload.id for workload in workloads.WORKLOADS]
    assert len(ids) == len(set(ids))
    for needed in (
        "tls-32",
        "new-connection",
        "http2-32",
        "plain-1",
        "plain-256",
        "sse-32",
        "rules",
        "audit",
        "workers",
    ):
        assert needed in ids
    targets = re.findall(r"^(bench[a-z-]*):", (report.ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) == 4
    assert all(f"make {target} " in report.PAGE.read_text() for target in targets)


ASKS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "method" in asked:
        sampling = {"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": {}}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}))
        print(json.dumps(sampling), flush=True)
        told = {"told": json.loads(sys.stdin.readline())["error"]["code"]}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


def test_what_a_server_asks_of_its_client_is_refused_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path)
    with Server(place, WAYS["bare"], [sys.executable, "-c", ASKS]) as server:
        assert server.ask("tools/call", name="summarise")["result"] == {"told": -32601}
