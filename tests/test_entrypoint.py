"""The container's entrypoint, by what it would do; programs that write down how they were called stand for the rest.

tests/test_container.py runs it with the real ones.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.harness import REPOSITORY
from tests.support.timeouts import PATIENCE

ENTRYPOINT = REPOSITORY / "deploy" / "entrypoint"
NOTE = 'echo "$(basename "$0") $*" >>"$CALLS"\n'
# setpriv's own flags end where the program that it runs begins.
SETPRIV = NOTE + 'while [ "${1#-}" != "$1" ]; do case $1 in --reuid | --regid) shift ;; esac; shift; done\nexec "$@"\n'
RULES = 'case "$*" in "confine rules"*) echo "table inet interlock {}" ;; esac\n'
DROP = "setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs"
UP = f"{DROP} interlock up --log-level error"


@dataclass
class Stage:
    """A folder of stand-ins, and what they were called with."""

    folder: Path

    def program(self, name: str, script: str) -> None:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}")
        file.chmod(0o755)

    def run(self, *words: str, uid: int = 0, **env: str) -> tuple[int, list[str], str]:
        """Return the exit code, the calls, and what was said on stderr."""
        self.program("id", f"echo {uid}\n")
        calls = self.folder / "calls"
        calls.write_text("")
        variables = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CALLS": str(calls), **env}
        done = subprocess.run(
            [ENTRYPOINT, *(words or ("up", "--log-level", "error"))],
            env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.returncode, calls.read_text().splitlines(), done.stderr


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    for name, script in {"setpriv": SETPRIV, "interlock": NOTE + RULES, "nft": NOTE + "cat >/dev/null\n"}.items():
        stage.program(name, script)
    return stage


def test_root_becomes_the_proxys_user_for_good_before_anything_starts(stage: Stage) -> None:
    assert stage.run() == (0, [UP, "interlock up --log-level error"], "")
    assert stage.run("audit", "verify")[1] == [f"{DROP} interlock audit verify", "interlock audit verify"]


def test_another_user_needs_nothing_dropped(stage: Stage) -> None:
    assert stage.run(uid=10001) == (0, ["interlock up --log-level error"], "")


def test_rules_are_applied_before_anything_else_has_the_network(stage: Stage) -> None:
    code, calls, _ = stage.run(SIDECAR_CONFINE="1", INTERLOCK_DATABASE_URL="postgresql://db/x")
    assert code == 0
    assert calls[:3] == ["interlock confine rules --proxy-uid 10001", "nft -f -", f"{DROP} interlock db migrate"]
    assert stage.run("apply-rules")[:2] == (0, ["interlock confine rules --proxy-uid 10001", "nft -f -"])


@pytest.mark.parametrize(
    ("broken", "env", "said"),
    [
        ({}, {"SIDECAR_CONFINE": "true"}, "SIDECAR_CONFINE=true: write 1 or 0"),
        ({}, {"SIDECAR_CONFINE": "1", "SIDECAR_UID": "0"}, "must not be root"),
        ({"nft": "cat >/dev/null; exit 1\n"}, {"SIDECAR_CONFINE": "1"}, "give the container NET_ADMIN"),
        ({"interlock": NOTE + "exit 1\n"}, {"SIDECAR_CONFINE": "1"}, "no rules to confine the agent by"),
        ({"interlock": NOTE}, {"SIDECAR_CONFINE": "1"}, "no rules to confine the agent by"),
        ({}, {"SIDECAR_SHARE": "/nowhere"}, "SIDECAR_SHARE=/nowhere is no folder"),
        ({"interlock": NOTE + "exit 1\n"}, {"SIDECAR_SHARE": "/tmp"}, "there is no certificate to share"),
        ({}, {"SIDECAR_SHARE": "/tmp", "INTERLOCK_STATE_DIR": "/nowhere"}, "could not be put there as /tmp/ca.pem"),
        (
            {"interlock": NOTE + "echo no route >&2; exit 1\n"},
            {"INTERLOCK_DATABASE_URL_FILE": "/x", "SIDECAR_WAIT": "0"},
            "the database could not be migrated: no route",
        ),
        ({"interlock": NOTE + "exit 1\n"}, {"SIDECAR_FLEET": "1"}, "the fleet could not be joined"),
        ({}, {"SIDECAR_FLEET": "yes"}, "SIDECAR_FLEET=yes: write 1 or 0"),
        ({"setpriv": "exit 1\n"}, {}, ""),
    ],
)
def test_what_was_asked_for_and_cannot_be_done_stops_the_start(
    stage: Stage, broken: dict[str, str], env: dict[str, str], said: str
) -> None:
    for name, script in broken.items():
        stage.program(name, script)
    code, calls, stderr = stage.run(**env)
    assert (code, said in stderr) == (1, True), stderr
    assert "interlock up --log-level error" not in calls


def test_a_replica_joins_the_fleet_once_after_the_database_is_migrated(stage: Stage) -> None:
    env = {
        "INTERLOCK_DATABASE_URL": "postgresql://db/x",
        "SIDECAR_FLEET": "1",
        "INTERLOCK_STATE_DIR": str(stage.folder),
    }
    up = "interlock up --log-level error"
    assert stage.run(uid=10001, **env)[:2] == (0, ["interlock db migrate", "interlock join --or-init", up])
    # A login that may not migrate may not make a fleet either.
    assert stage.run(uid=10001, **env, SIDECAR_MIGRATE="0")[:2] == (0, ["interlock join", up])
    (stage.folder / "fleet.json").write_text("{}")
    assert stage.run(uid=10001, **env)[:2] == (0, ["interlock db migrate", up])


def test_who_is_not_root_cannot_be_asked_to_confine(stage: Stage) -> None:
    for words in (("up",), ("apply-rules",)):
        code, calls, stderr = stage.run(*words, uid=10001, SIDECAR_CONFINE="1")
        assert (code, calls) == (1, [])
        assert "by root alone" in stderr


def test_the_agent_gets_certificates_and_nothing_with_a_key_in_it(stage: Stage) -> None:
    ca, share = stage.folder / "ca", stage.folder / "share"
    share.mkdir()
    ca.mkdir()
    (ca / "ca.pem").write_text("certificate")
    (ca / "node-proxy.cjs").write_text("script")
    (ca / "bundle.pem").write_text("certificates\n-----BEGIN EC PRIVATE KEY-----\n")
    env = {"INTERLOCK_STATE_DIR": str(stage.folder), "SIDECAR_SHARE": str(share)}
    code, _, stderr = stage.run(**env)
    assert (code, "has a key in it" in stderr) == (1, True)
    (ca / "bundle.pem").write_text("certificates")
    (ca / "bundle.pem").chmod(0o600)
    assert stage.run(**env)[0] == 0
    assert {path.name: path.stat().st_mode & 0o777 for path in share.iterdir()} == {
        "ca.pem": 0o644,
        "bundle.pem": 0o644,
        "node-proxy.cjs": 0o644,
    }


def test_a_database_that_comes_late_is_waited_for_and_one_that_is_not_ours_is_left(stage: Stage) -> None:
    stage.program(
        "interlock", NOTE + 'case $1 in db) [ "$(wc -l <"$CALLS")" -gt 3 ] || { echo refused; exit 1; } ;; esac\n'
    )
    code, calls, stderr = stage.run(INTERLOCK_DATABASE_URL="postgresql://db/x")
    assert (code, calls.count("interlock db migrate")) == (0, 2)
    assert stderr.count("waiting for the database: refused") == 1
    assert "interlock db migrate" not in stage.run(INTERLOCK_DATABASE_URL="postgresql://db/x", SIDECAR_MIGRATE="0")[1]
