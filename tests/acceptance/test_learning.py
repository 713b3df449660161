"""A policy learned from what really passed: the demo's tour, and agents that fetch pages through a proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.core.model import Call, Outcome
from proxy.policy.load import load_policy
from proxy.redact import builtin
from tests.support.harness import Interlock, free_port, interlock_cli, start_interlock, start_python_server
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE

DEMO = Path(__file__).resolve().parent.parent.parent / "examples" / "demo"
TOUR = """\
import asyncio, pathlib, sys
sys.path.insert(0, sys.argv[1])
import run, world
from screen import Screen
folder = pathlib.Path(sys.argv[2])
with world.running(folder) as tour:
    asyncio.run(run.follow(tour, Screen(folder / "demo.svg")))
    asyncio.run(run.watch_stdio(tour, Screen(folder / "demo.svg")))
"""
REPORT = """\
version: 1
default: allow
egress: {default: report}
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder that the demo's tour leaves."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-c", TOUR, str(DEMO), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "state"


@needs("strace")
def test_from_the_demos_trail_every_allowed_call_is_allowed_and_no_refused_one(demo: Path, tmp_path: Path) -> None:
    file = tmp_path / "learned.yaml"
    learned = interlock_cli("policy", "learn", "--state-dir", str(demo), "-o", str(file), "--json")
    assert learned.returncode == 0, learned.stderr
    for words in (("check", "--strict"), ("test",)):
        assert interlock_cli("policy", *words, str(file)).returncode == 0
    replayed = interlock_cli("policy", "replay", "--state-dir", str(demo), "--json", str(file))
    *changes, summary = map(json.loads, replayed.stdout.splitlines())
    assert changes == []
    assert summary["decided"] >= 5
    queried = interlock_cli("audit", "query", "--state-dir", str(demo), "--json").stdout
    known = {json.loads(line)["call_id"] for line in queried.splitlines()}
    rules = json.loads(learned.stdout)["rules"]
    assert rules
    assert all(rule["audit_ids"] and set(rule["audit_ids"]) <= known for rule in rules)


@needs("strace")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "/etc/shadow"}),
        ("read_file", {"path": "notes/../../../etc/shadow"}),
        ("read_file", {"path": "notes/plan.txt", "follow": True}),
        ("transfer_funds", {"amount": 250_000, "to": "alice"}),
        ("delete_everything", {}),
        ("format_note", {"title": "x" * 2000}),
    ],
)
def test_from_the_demos_trail_attacks_are_denied(
    demo: Path, tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    file = tmp_path / "learned.yaml"
    assert interlock_cli("policy", "learn", "--state-dir", str(demo), "-o", str(file)).returncode == 0
    policy = load_policy(file, builtin())
    servers = {server for rule in policy.rules.values() for server in rule.servers or ()}
    for server in servers:
        assert policy.decide(Call("tools/call", server, "agent", tool, arguments)).outcome is Outcome.DENY, server


@needs("strace")
def test_from_the_demos_trail_what_took_two_phases_waits_for_a_person(demo: Path, tmp_path: Path) -> None:
    file = tmp_path / "learned.yaml"
    assert interlock_cli("policy", "learn", "--state-dir", str(demo), "-o", str(file)).returncode == 0
    policy = load_policy(file, builtin())
    (rule,) = (one for one in policy.rules.values() if one.action == "two_phase")
    assert rule.servers
    call = Call("tools/call", rule.servers[0], "agent", "transfer_funds", {"amount": 250, "to": "mallory"})
    decision = policy.decide(call)
    assert decision.outcome is Outcome.TWO_PHASE
    assert decision.terms is not None
    assert decision.terms.approval == "human"


def fetch(interlock: Interlock, token: str, url: str) -> int:
    proxy = httpx2.Proxy(interlock.proxy_url, auth=("x", token) if token else None)
    with httpx2.Client(proxy=proxy, trust_env=False, timeout=PATIENCE) as http:
        return http.get(url).status_code


def test_hosts_are_learned_for_each_agent_and_hold_in_a_proxy(tmp_path: Path) -> None:
    with (
        start_python_server("web", tmp_path / "one") as one,
        start_python_server("web", tmp_path / "two") as two,
    ):
        first, second = one.url + "/echo", two.url + "/echo"
        with start_interlock(tmp_path / "watch", policy=REPORT) as watching:
            token = watching.cli("agents", "add", "x").stdout.strip()
            assert fetch(watching, "", first) == fetch(watching, token, first) == fetch(watching, token, second) == 200
            watching.events()
            file = tmp_path / "learned.yaml"
            done = watching.cli("policy", "learn", "-o", str(file))
            assert done.returncode == 0, done.stderr
        assert interlock_cli("policy", "test", str(file)).returncode == 0
        with start_interlock(tmp_path / "held", policy=file.read_text()) as holding:
            token = holding.cli("agents", "add", "x").stdout.strip()
            assert fetch(holding, token, first) == fetch(holding, token, second) == fetch(holding, "", first) == 200
            assert fetch(holding, "", second) == 403, "the agent without a token was never there"
            assert fetch(holding, token, f"http://127.0.0.1:{free_port()}/") == 403
