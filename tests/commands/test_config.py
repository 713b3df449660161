"""`interlock config`."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.config import Settings
from tests.commands.conftest import Run, complaint


def test_every_setting_is_shown_with_value_and_source(run: Run, tmp_path: Path) -> None:
    (tmp_path / "interlock.yaml").write_text("log_level: debug\nlarge_uploads: [a, b]\n")
    done = run("config", "show", INTERLOCK_LISTEN="[fe80::1]:9000")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[1:] if line.strip()}
    assert Settings.model_fields.keys() <= lines.keys()
    assert "[fe80::1]:9000" in lines["listen"]
    assert "INTERLOCK_LISTEN" in lines["listen"]
    assert "file interlock.yaml" in lines["log_level"]
    assert "a, b" in lines["large_uploads"]
    assert "default" in lines["mode"]


def test_json_has_one_object_a_line(run: Run, tmp_path: Path) -> None:
    done = run("config", "show", "--json", "--state-dir", str(tmp_path / "[bold]s[/]"))
    rows = {row["setting"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows.keys() == Settings.model_fields.keys()
    assert rows["state_dir"] == {
        "setting": "state_dir",
        "value": str(tmp_path / "[bold]s[/]"),
        "source": "flag",
    }


def test_a_databases_password_is_not_shown(run: Run) -> None:
    for arguments in (("--json",), ()):
        done = run("config", "show", *arguments, INTERLOCK_DATABASE_URL="postgresql://u:s3cret@h/db")
        assert "postgresql://u:***@h/db" in done.stdout
        assert "s3cret" not in done.stdout + done.stderr


def test_a_wrong_setting_is_told_without_a_traceback(run: Run) -> None:
    assert complaint(run("config", "show", INTERLOCK_LISTEN="x")).startswith(
        "setting listen = 'x' (from INTERLOCK_LISTEN): write HOST:PORT"
    )
    assert "did you mean listen?" in complaint(run("config", "show", INTERLOCK_LISEN="x"))
    assert "does not exist" in complaint(run("config", "show", "--config", "gone.yaml"))
