"""`interlock sandbox`: profiles learned from a probe and from the trail, compared and shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.audit.local_log_files import RunLog
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.sandbox.profile_files import load_profile
from tests.commands.conftest import ROOT, Run, complaint
from tests.support.harness import seed_cache
from tests.support.system_needs import needs, needs_namespaces

FORMATTER = ["--", sys.executable, str(ROOT / "tests" / "servers" / "formatter.py")]


def live(test: Callable[..., None]) -> Callable[..., None]:
    return needs("strace", "ip", "unshare")(needs_namespaces(test))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    seed_cache(tmp_path / "state")
    return tmp_path / "state"


@live
def test_a_profile_of_a_leaky_server_permits_no_leak_and_its_update_needs_no_more(
    run: Run, state: Path, tmp_path: Path
) -> None:
    file = tmp_path / "learned.yaml"
    done = run("sandbox", "learn", "--repeats", "0", "-o", str(file), *FORMATTER, "--leaky")
    assert done.returncode == 0, done.stderr
    text, profile = file.read_text(), load_profile(str(file))
    assert profile.hosts == ()
    assert not any(".ssh" in line for line in (*profile.read, *profile.secrets))
    left = text.partition("# Left out")[2]
    assert "canary-read" in left
    assert "undeclared-egress" in left
    same = run("sandbox", "diff", "--ci", "--repeats", "0", str(file), *FORMATTER)
    assert same.returncode == 0, same.stdout + same.stderr
    assert "0 more" in same.stdout


def _observed(state: Path) -> None:
    log = RunLog(state, max_bytes=1 << 20)
    call = new_id()
    seen = [
        {"capability": "fs.read", "action": "open", "path": "/srv/data/a", "count": 4},
        {"capability": "fs.read", "action": "open", "path": str(Path.home() / ".ssh" / "id_rsa"), "count": 1},
        {"capability": "net.connect", "action": "connect", "peer": "api.example:443", "count": 1},
    ]
    common = {"time": 1_790_000_000.0, "server": "demo", "transport": "stdio", "call_id": call}
    log.record_later(AuditEvent(event_id=new_id(), kind="decided", tool="lookup", **common))
    log.record_later(AuditEvent(event_id=new_id(), kind="observed", detail={"observations": seen}, **common))
    log.close()


def test_a_profile_is_learned_from_the_trail_without_its_secrets(run: Run, state: Path) -> None:
    _observed(state)
    done = run("sandbox", "learn", "--from", "trail", "--server", "demo", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["profile"]["read"] == ["/srv/data/a"]
    assert data["profile"]["network"] == ["api.example:443"]
    assert len(data["left_out"]) == 1
    assert ".ssh/id_rsa" in data["left_out"][0]["what"]
    text = run("sandbox", "learn", "--from", "trail", "--server", "demo").stdout
    assert "- /srv/data/a  # lookup: 4" in text
    assert "has seen nothing" in complaint(run("sandbox", "learn", "--from", "trail", "--server", "nobody"))


def test_what_is_missing_is_said(run: Run, state: Path) -> None:
    assert "after --" in complaint(run("sandbox", "learn"))
    _observed(state)
    assert "--server" in complaint(run("sandbox", "learn", "--from", "trail"))


def test_more_gives_three_with_ci_only(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("extends: [node]\nread: [$ROOTS]\n")
    new.write_text("extends: [node]\nwrite: [$ROOTS]\nnetwork: ['api.example:443']\n")
    done = run("sandbox", "diff", str(old), str(new))
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["+ write: $ROOTS", "+ network: api.example:443", "2 more, 0 less"]
    assert run("sandbox", "diff", "--ci", str(old), str(new)).returncode == 3
    assert run("sandbox", "diff", "--ci", str(new), str(old)).returncode == 0


def test_a_profile_is_shown_with_what_it_extends(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("extends: [git]\nread: [/srv/x]\n")
    said = run("sandbox", "show", str(own)).stdout
    assert "- /srv/x  # this profile" in said
    assert "- $HOME/.gitconfig  # git" in said
    assert "# base" in said
    assert "mode: enforce" in said


def test_a_servers_profile_is_shown_from_the_policy(run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndefault: allow\nsandbox:\n  demo: {extends: [node], read: [/srv/x]}\n")
    assert "- /srv/x" in run("sandbox", "show", "demo", "--policy", str(policy)).stdout
    assert "no sandbox" in complaint(run("sandbox", "show", "other", "--policy", str(policy)))
    assert "no sandbox profile" in complaint(run("sandbox", "show", "nothing"))
