"""The `interlock keys` commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Run, complaint

SECRET = "0123456789abcdef" * 4


def rows(run: Run, *arguments: str, **environ: str) -> list[dict]:
    done = run("keys", "list", "--json", *arguments, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_before_the_first_start_there_are_none(run: Run, tmp_path: Path) -> None:
    assert "No keys yet" in run("keys", "list").stdout
    assert not (tmp_path / "state").exists()


def test_rotate_makes_keys_and_list_shows_everything_but_them(run: Run, tmp_path: Path) -> None:
    run("keys", "rotate")
    (first,) = rows(run)
    done = run("keys", "rotate", "--keep-seconds", "500")
    signing, old = rows(run)
    assert f"Key {signing['key']} signs from now on." in done.stderr
    assert (signing["use"], signing["not_after"]) == ("signs", None)
    assert (old["key"], old["use"]) == (first["key"], "verifies")
    assert old["not_after"] == pytest.approx(signing["created_at"] + 500, abs=60)
    kept = json.loads((tmp_path / "state" / "keys" / "commit-keys.json").read_text())
    printed = run("keys", "list").stdout + run("keys", "list", "--json").stdout + done.stderr
    assert signing["key"] in printed
    assert not any(row["secret"] in printed for row in kept["keys"])


def test_the_file_may_be_another(run: Run, tmp_path: Path) -> None:
    run("keys", "rotate", "--commit-keys", str(tmp_path / "shared.json"))
    assert (tmp_path / "shared.json").exists()
    assert len(rows(run, INTERLOCK_COMMIT_KEYS=str(tmp_path / "shared.json"))) == 1
    assert rows(run) == []


def test_keys_of_the_environment_are_listed_and_not_rotated(run: Run) -> None:
    first, second = rows(run, INTERLOCK_COMMIT_SECRET=f"{SECRET},{SECRET[::-1]}")
    assert (first["use"], second["use"], first["created_at"]) == ("signs", "verifies", None)
    assert "start every proxy anew" in complaint(run("keys", "rotate", INTERLOCK_COMMIT_SECRET=SECRET))


def test_the_environments_secret_is_never_printed(run: Run) -> None:
    for command in (("keys", "list"), ("config", "show"), ("config", "show", "--json")):
        done = run(*command, INTERLOCK_COMMIT_SECRET=SECRET, INTERLOCK_SAMPLER_KEY="sk-hidden")
        assert done.returncode == 0
        assert SECRET not in done.stdout + done.stderr
        assert "sk-hidden" not in done.stdout + done.stderr


def test_a_file_that_others_can_read_is_refused_with_the_command_to_run(run: Run, tmp_path: Path) -> None:
    run("keys", "rotate")
    path = tmp_path / "state" / "keys" / "commit-keys.json"
    path.chmod(0o644)
    assert f"chmod 600 {path}" in complaint(run("keys", "list"))
    assert f"chmod 600 {path}" in complaint(run("keys", "rotate"))


def test_no_key_is_kept_for_less_than_no_time(run: Run) -> None:
    assert run("keys", "rotate", "--keep-seconds", "-1").returncode == 2
