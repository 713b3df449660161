"""The same rules in a network that an agent shares with the proxy, as containers of one pod do."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.confine.gateway import allow_descriptors
from tests.support.harness import environment, free_port
from tests.support.processes import REPOSITORY, start_module
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE


@needs("nft", "ip")
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF root: a second user is needed in the network")
def test_all_but_the_proxys_user_is_led_to_the_proxy_and_nothing_else_leaves() -> None:
    command = [sys.executable, "-m", "tests.confine.container_scene"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    seen = told["seen"]
    assert "\\xc6\\x12\\x00\\x01" in seen["name"]
    assert seen["connection to the name"] == seen["address"] == "heard b'hello'"
    assert told["asked"] == ["mcp.test:443", "203.0.113.9:443"]
    for way in ("UDP", "UDP, IPv6", "Docker's resolver by its own port"):
        assert seen[way].startswith("PermissionError"), seen
    assert told["sent by the agent"] == 0
    assert told["sent"] == 1  # so packets are counted


def test_it_says_where_it_listens_and_stops_when_told(tmp_path: Path) -> None:
    port, resolver = free_port(), free_port()
    words = ["confine", "gateway", "--port", str(port), "--resolver-port", str(resolver), "--listen", "127.0.0.1:9"]
    words += ["--state-dir", str(tmp_path)]
    with start_module("proxy.cli", *words, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert f"port {port}, names on {resolver}" in process.stdout.readline().decode()
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_it_is_known_how_many_files_the_system_lets_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (256, 1024)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.update(now=wanted))
    assert allow_descriptors(2560) == 1024
    assert limits["now"] == (1024, 1024)
