"""`interlock doctor`: one line for each thing, an exit code, and nothing changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from proxy.store.pin_files import PinFiles
from tests.commands.conftest import Run
from tests.support.harness import interlock_cli, start_interlock
from tests.support.trail_fixture import sign, write

# Any port: the machine's usual ones may be somebody else's.
FREE = {f"INTERLOCK_{name}": "127.0.0.1:0" for name in ("LISTEN", "HEALTH_LISTEN", "CONSOLE_LISTEN")}


def test_each_thing_has_its_line_and_the_exit_code_says_whether_all_is_well(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    write(state, [1])
    sign(state)
    before = {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = run("doctor", "--json", **FREE, HTTPS_PROXY="", https_proxy="")
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


def test_a_running_proxy_gets_a_call_and_each_runtime_a_try(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    (path / "curl").symlink_to(shutil.which("curl") or "")
    with start_interlock(tmp_path) as proxy:
        words = ["doctor", "--json", "--state-dir", str(proxy.state_dir)]
        done = interlock_cli(*words, env={"PATH": str(path)})
        rows = {row.get("check"): row for row in map(json.loads, done.stdout.splitlines())}
        assert rows["runtime curl"]["said"] == "goes through the proxy", done.stdout + done.stderr
        assert rows["mcp call"]["state"] == "ok", rows["mcp call"]
        assert done.stderr == ""
        (call, *_) = [call for call in proxy.recorded() if call.get("tool") == "interlock_doctor"]
        assert call["call_id"] in rows["mcp call"]["said"]
        assert PinFiles(proxy.state_dir).servers() == []
        quick = interlock_cli(*words, "--quick", env={"PATH": str(path)})
        assert not [row for row in map(json.loads, quick.stdout.splitlines()) if "runtime" in row.get("check", "")]
        refused = interlock_cli(*words, env={"PATH": str(path), "INTERLOCK_AGENT_AUTH": "required"})
        assert "not tried: callers need an agent's token" in refused.stdout
