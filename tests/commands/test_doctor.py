"""`interlock doctor`: one line for each thing, an exit code, and nothing changed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.conftest import Run
from tests.support.trail_fixture import sign, write


def test_each_thing_has_its_line_and_the_exit_code_says_whether_all_is_well(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    write(state, [1])
    sign(state)
    before = {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    # No port of the machine's: whatever listens there is none of this test's business.
    free = {f"INTERLOCK_{name}LISTEN": "127.0.0.1:0" for name in ("", "HEALTH_", "CONSOLE_")}
    done = run("doctor", "--json", **free, HTTPS_PROXY="", https_proxy="")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout
    states = {row["check"]: row["state"] for row in rows if row["kind"] == "check"}
    assert states["python"] == states["policy"] == states["database"] == states["disk"] == "ok"
    assert states["audit log"] == "warn", "an event waits for long"
    assert rows[-1]["fail"] == 0
    assert rows[-1]["ok"] == sum(state == "ok" for state in states.values())
    assert {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    shown = run("doctor", INTERLOCK_LISTEN="203.0.113.7:1", INTERLOCK_POLICY=str(tmp_path / "none.yaml"))
    assert shown.returncode == 1
    assert "→ give another --listen" in shown.stdout


def test_settings_that_cannot_be_read_are_a_finding(run: Run) -> None:
    done = run("doctor", "--json", INTERLOCK_LISTEN="nonsense", INTERLOCK_DATABASE_URL="postgresql://u:hunter2@h/d")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, rows[0]["check"], rows[0]["state"]) == (1, "settings", "fail")
    assert any(row.get("check") == "python" for row in rows)
    assert "hunter2" not in done.stdout + done.stderr
