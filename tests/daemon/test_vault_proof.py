"""The value of a credential is nowhere where an agent or a local server could find it, although both use it.

A confined agent and a sandboxed server call a TLS server that sends back what it gets. Then they search, and the test
does: environment, memory and arguments of processes, files, the state folder, the trail, logs and crash dumps. The
same program without the vault finds the value each time, so the search can.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.core.vault import Place
from tests.daemon.vault_scene import World
from tests.support.harness import environment, make_certificates, start_interlock, start_python_server
from tests.support.processes import REPOSITORY, run_module
from tests.support.stdio_harness import Run, start_run
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail
from tests.support.value_scan import files_below, holds, in_files, make_value

pytestmark = [needs("nft", "ip", "unshare"), needs_namespaces, pytest.mark.timeout(8 * PATIENCE)]
PROGRAM = str(REPOSITORY / "tests" / "servers" / "token_user.py")
POLICY = """\
version: 1
default: allow
egress:
  default: allow
  rules:
    - {id: known, action: allow, hosts: [web.test]}
"""
SEEN_BY_ALL = ("/tmp", "/dev/shm", "/run", "/etc")
BOTH = (Place.HEADER, Place.QUERY)


@dataclass
class Scene:
    """A proxy before a server that sends back what it gets. `own` is the folder of agents and servers."""

    world: World
    own: Path
    key: str
    value: str
    since: float
    placeholder: str | None = None
    server_placeholder: str | None = None

    @property
    def state_dir(self) -> Path:
        return self.world.interlock.state_dir

    @property
    def url(self) -> str:
        return self.world.url("/see")

    @property
    def searched(self) -> list[str]:
        return [*map(str, (self.own, self.state_dir, self.world.vault.folder)), *SEEN_BY_ALL]

    def agent(self) -> dict[str, Any]:
        """Run an agent, confined, with the value in its caller's environment; return what it told before its crash."""
        words = [PROGRAM, self.url, self.key, str(self.since), str(self.own / "agent.crash"), *self.searched]
        flags = ["confine", "--state-dir", str(self.state_dir), "--", sys.executable, *words]
        env = environment({"HOME": str(self.own), "API_TOKEN": self.value})
        done = run_module("proxy.cli", *flags, env=env, cwd=self.own, timeout=2 * PATIENCE)
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        assert told["bytes"] > 1 << 20
        assert holds(done.stdout.encode(), self.key) == (self.placeholder is None)
        return told

    def server(self, *flags: str) -> tuple[str, dict[str, Any]]:
        """Let a sandboxed server use its token, also in a query that a call has; return its answer, and what it found.

        In the end it crashes.
        """
        profile = self.own / "profile.yaml"
        granted = {
            "network": [f"web.test:{self.world.server.port}"],
            "read": [str(REPOSITORY), str(self.world.vault.folder)],
        }
        more = {"write": [str(self.own)], "env": ["API_TOKEN"]}
        profile.write_text(json.dumps({"extends": ["python"], **granted, **more}))
        words = ("--server-name", "token-user", f"--sandbox={profile}", *flags)
        env = {"API_TOKEN": self.value}
        command = [sys.executable, PROGRAM]
        with start_run(self.own, command, *words, policy=POLICY, state_dir=self.state_dir, env=env) as run:
            told = self._ask(run)
            run.send(
                {
                    "jsonrpc": "2.0",
                    "id": 9,
                    "method": "tools/call",
                    "params": {"name": "crash", "arguments": self._report()},
                }
            )
            run.wait()
        return told

    def _report(self) -> dict[str, str]:
        return {"report": str(self.own / "server.crash")}

    def _ask(self, run: Run) -> tuple[str, dict[str, Any]]:
        token = self.server_placeholder or self.value
        used = run.call("use", 1, url=f"{self.url}?q={token}")
        assert used["result"].get("isError") is not True, (used, run.errors())
        looked = run.call("look", 2, key=self.key, since=str(self.since), folders=json.dumps(self.searched))
        assert looked["result"].get("isError") is not True, looked
        found: dict[str, Any] = json.loads(looked["result"]["content"][0]["text"])
        assert found["bytes"] > 1 << 20
        return str(used["result"]["content"][0]["text"]), found

    def left(self) -> list[str]:
        """Return which files that agent, server and proxy left have the value: dumps, logs and state among them."""
        proxy = self.world.interlock
        names = [*files_below(map(str, (self.own, self.state_dir)), self.since), str(proxy.stderr)]
        return [Path(name).name for name in in_files(names, self.key)]


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A scene with the vault, or without."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-proof-", dir="/var/tmp")))
        (folder / "own").mkdir()
        certificates = make_certificates(folder / "certificates", "web.test")
        web = stack.enter_context(start_python_server("reflecting", folder / "web", certificates=certificates))
        trusted = {"upstream_ca": certificates.ca_file, "program": ["tests.daemon.named"]}
        interlock = stack.enter_context(start_interlock(folder / "proxy", policy=POLICY, **trusted))
        behind = World(interlock, web, folder / "sources")
        key, since = secrets.token_hex(8), time.time()
        scene = Scene(behind, folder / "own", key, make_value(key), since)
        behind.vault.folder.mkdir(mode=0o700)
        if request.param == "with the vault":
            bound: dict[str, Any] = {"places": BOTH, "variable": "API_TOKEN"}
            scene.placeholder = behind.vault.add("api", scene.value, **bound)
            scene.server_placeholder = behind.vault.add("server", scene.value, servers=("token-user",), **bound)
        yield scene


with_vault = pytest.mark.parametrize("made", ["with the vault"], indirect=True)
without = pytest.mark.parametrize("made", ["without"], indirect=True)


@with_vault
def test_a_confined_agent_uses_it_and_nobody_finds_it(made: Scene) -> None:
    told = made.agent()
    assert made.world.header("authorization") == f"Bearer {made.value}"
    assert told["token"] == made.placeholder
    assert str(made.placeholder) in told["answer"]
    assert (told["memory"], told["environ"], told["processes"], told["files"]) == (False, False, [], [])
    dump = (made.own / "agent.crash").read_bytes()
    assert str(made.placeholder).encode() in dump
    assert len(dump) > 1 << 20
    made.world.interlock.stop()
    assert not holds(json.dumps(read_trail(made.state_dir)).encode(), made.key)
    assert made.left() == []


@without
def test_without_the_vault_the_same_agent_finds_it(made: Scene) -> None:
    told = made.agent()
    assert made.world.header("authorization") == f"Bearer {made.value}"
    assert told["token"] == made.value
    assert (told["memory"], told["environ"]) == (True, True)
    assert told["processes"]
    assert "agent.crash" in made.left()


@pytest.mark.parametrize("trace", ["off", pytest.param("require", marks=needs("strace"))])
@with_vault
def test_a_sandboxed_server_uses_it_and_nobody_finds_it(made: Scene, trace: str) -> None:
    answer, found = made.server("--trace", trace)
    assert made.world.header("authorization") == f"Bearer {made.value}"
    assert made.world.seen()["query"] == f"q={made.value}"
    assert str(made.server_placeholder) in answer
    assert (found["memory"], found["environ"], found["processes"], found["files"]) == (False, False, [], [])
    dump = (made.own / "server.crash").read_bytes()
    assert str(made.server_placeholder).encode() in dump
    made.world.interlock.stop()
    trail = json.dumps(read_trail(made.state_dir))
    assert str(made.server_placeholder) in trail
    assert not holds(trail.encode(), made.key)
    assert made.left() == []


@without
def test_without_the_vault_the_same_server_finds_it_and_so_does_the_trail(made: Scene) -> None:
    answer, found = made.server("--trace", "off")
    assert made.value in answer
    assert (found["memory"], found["environ"]) == (True, True)
    made.world.interlock.stop()
    assert holds(json.dumps(read_trail(made.state_dir)).encode(), made.key)
    assert "server.crash" in made.left()


@with_vault
def test_a_server_without_a_sandbox_uses_it_by_the_proxys_variables(made: Scene) -> None:
    flags = ("--server-name", "token-user", "--trace", "off")
    env = {"API_TOKEN": made.value}
    with start_run(
        made.own, [sys.executable, PROGRAM], *flags, policy=POLICY, state_dir=made.state_dir, env=env
    ) as run:
        used = run.call("use", 1, url=made.url)
        assert run.end() == 0, run.errors()
    assert made.world.header("authorization") == f"Bearer {made.value}"
    assert str(made.server_placeholder) in used["result"]["content"][0]["text"]
    assert not holds(json.dumps(used).encode(), made.key)
