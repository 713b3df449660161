"""Transparent mode: a client that knows of no proxy, in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.harness import REPOSITORY, seed_cache
from tests.support.processes import PLAIN
from tests.support.system_needs import needs, needs_namespaces


@needs("nft", "ip", "unshare", "nsenter")
@needs_namespaces
def test_a_client_without_proxy_settings_is_gated_in_the_clear_and_inside_tls(tmp_path):
    seed_cache(tmp_path / "proxy" / "state")
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.daemon.transparent_scene", str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {PLAIN: "1"},  # a zygote for one process would cost more than it saves
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    scene = json.loads(done.stdout)
    for scheme in ("http", "https"):
        denied = scene["seen"][f"{scheme} danger"]["result"]
        assert denied["_meta"]["mcp-interlock/denial"]["reason"] == "policy_denied"
        assert scene["seen"][f"{scheme} echo"]["result"]["content"][0]["text"] == "hi"
    assert scene["executed"] == ["echo", "echo"]
    servers = {event["server"] for event in scene["events"] if event.get("tool")}
    assert servers == {"localhost:9000", "localhost:9443"}
