"""`interlock vault`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.vault.placeholder import is_placeholder
from proxy.vault.vault_file import VaultFile
from tests.commands.conftest import Run, complaint

VALUE = "s3cret-value-of-a-test"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    return path


def listed(run: Run) -> dict[str, dict[str, Any]]:
    found = map(json.loads, run("vault", "list", "--json").stdout.splitlines())
    return {one["credential"]: one for one in found}


def test_what_is_added_is_one_placeholder_on_stdout_and_never_the_value(run: Run, secret: Path, tmp_path: Path) -> None:
    done = run("vault", "add", "gh", "--file", str(secret), "--host", "api.github.com", "--like", "ghp_")
    (made,) = done.stdout.splitlines()
    assert made.startswith("ghp_")
    assert is_placeholder(made)
    assert run("vault", "placeholder", "gh").stdout == f"{made}\n"
    assert made in run("vault", "show", "gh").stdout
    assert made not in run("vault", "list").stdout
    said = [run("vault", *words) for words in (["show", "gh"], ["list"], ["test"], ["test", "gh", "--json"])]
    assert all(VALUE not in one.stdout + one.stderr and one.returncode == 0 for one in [done, *said])
    assert all(VALUE not in each.read_text() for each in (tmp_path / "state").iterdir())


def test_bindings_and_sources_of_every_kind_are_kept(run: Run, secret: Path) -> None:
    wide = ["--tool", "a_*", "--agent", "bot", "--place", "body", "--place", "path", "--server", "s", "--variable", "V"]
    run("vault", "add", "file", "--file", secret.name, "--key", "a.b", "--host", "x.example", *wide, "--allow-plain")
    run("vault", "add", "env", "--env", "TOKEN", "--host", "x.example")
    command = ["--command", "cat 'a b'", "--command-env", "GNUPGHOME", "--ttl", "5"]
    run("vault", "add", "command", *command, "--host", "x.example")
    found = listed(run)
    assert found["file"]["source"] == {"kind": "file", "path": str(secret), "key": "a.b"}
    assert found["file"]["bindings"] == {
        "hosts": ["x.example"],
        "tools": ["a_*"],
        "agents": ["bot"],
        "places": ["body", "path"],
        "plain": True,
        "servers": ["s"],
        "variable": "V",
    }
    assert found["env"]["source"] == {"kind": "env", "variable": "TOKEN"}
    assert found["command"]["source"] == {"kind": "command", "argv": ["cat", "a b"], "environment": ["GNUPGHOME"]}
    assert found["command"]["ttl"] == 5


def test_a_value_on_the_command_line_is_not_taken_nor_repeated(run: Run) -> None:
    said = complaint(run("vault", "add", "gh", VALUE, "--host", "api.github.com"))
    assert "give --file" in said
    assert VALUE not in said
    assert listed(run) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "credential 'x' needs a source; give --file, --env or --command"),
        (["--file", "a", "--env", "B"], "give one of --file, --env and --command"),
        (["--env", "B", "--key", "k"], "give --file with it"),
        (["--env", "B", "--ttl", "4"], "give --command with them"),
        (["--env", "a-b"], "variable 'a-b' is not allowed"),
        (["--command", "'x"], "check its quotes"),
        (["--command", " "], "--command is empty"),
        (["--command", "/no/program at-all"], "there is no program '/no/program' on PATH"),
        (["--env", "B", "--host", "*"], "host '*' is not allowed; write a name such as"),
        (["--env", "B", "--host", "https://x.example"], "host 'https://x.example' is not allowed"),
        (["--env", "B", "--server", "s"], "give --variable with --server"),
        (["--env", "B", "--like", "a b"], "--like 'a b' is not allowed"),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(run: Run, words: list[str], said: str) -> None:
    assert said in complaint(run("vault", "add", "x", *words))
    assert listed(run) == {}


def test_bindings_change_and_the_placeholder_stays(run: Run, secret: Path) -> None:
    made = run("vault", "add", "gh", "--file", str(secret), "--host", "a.example", "--tool", "t").stdout.strip()
    run("vault", "bind", "gh", "--host", "b.example", "--host", "c.example")
    assert listed(run)["gh"]["bindings"]["hosts"] == ["b.example", "c.example"]
    assert listed(run)["gh"]["bindings"]["tools"] == ["t"]
    run("vault", "bind", "gh", "--tool", "", "--variable", "GH_TOKEN", "--allow-plain")
    assert listed(run)["gh"]["bindings"] | {"hosts": []} == {
        "hosts": [],
        "tools": [],
        "agents": [],
        "places": ["header"],
        "plain": True,
        "servers": [],
        "variable": "GH_TOKEN",
    }
    run("vault", "bind", "gh", "--variable", "", "--no-allow-plain", "--command", "cat x")
    found = listed(run)["gh"]
    assert (found["bindings"]["variable"], found["bindings"]["plain"]) == (None, False)
    assert found["source"]["argv"] == ["cat", "x"]
    run("vault", "bind", "gh", "--ttl", "9")
    assert (listed(run)["gh"]["ttl"], listed(run)["gh"]["placeholder"]) == (9, made)
    assert "there is no credential 'no'; known credentials: gh" in complaint(run("vault", "bind", "no"))
    assert "host '*' is not allowed" in complaint(run("vault", "bind", "gh", "--host", "*"))
    assert listed(run)["gh"]["bindings"]["hosts"] == ["b.example", "c.example"]


def test_a_revoked_one_is_gone_and_its_placeholder_known(run: Run, secret: Path, tmp_path: Path) -> None:
    made = run("vault", "add", "gh", "--file", str(secret)).stdout.strip()
    assert json.loads(run("vault", "revoke", "gh", "--json").stdout)["placeholder"] == made
    assert listed(run) == {}
    assert "No credentials yet" in run("vault", "list").stdout
    assert [stone.placeholder for stone in VaultFile(tmp_path / "state").read().revoked] == [made]
    assert "there is no credential 'gh'" in complaint(run("vault", "revoke", "gh"))
    assert "there is no credential 'gh'" in complaint(run("vault", "placeholder", "gh"))


def test_a_source_that_fails_is_told_by_exit_code_and_without_the_value(run: Run, secret: Path) -> None:
    run("vault", "add", "good", "--file", str(secret))
    run("vault", "add", "gone", "--file", f"{secret}-2")
    run("vault", "add", "cut", "--command", f"head -c 0 {secret}")
    done = run("vault", "test", "--json")
    found = {one["credential"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1
    assert (found["good"]["bytes"], found["good"]["error"]) == (len(VALUE), None)
    assert "No such file" in found["gone"]["error"]
    assert found["cut"]["error"] == "it is empty"
    assert VALUE not in done.stdout + done.stderr
    assert run("vault", "test", "good").returncode == 0
    assert run("vault", "test").returncode == 1


def test_a_person_is_warned_of_files_that_an_agent_may_read_too(run: Run, secret: Path) -> None:
    done = run("vault", "add", "gh", "--file", str(secret))
    assert "it is bound to no host and goes nowhere; `interlock vault bind gh --host HOST` binds it" in done.stderr
    assert "so may an agent that is not confined" in done.stderr
    (warning,) = json.loads(run("vault", "bind", "gh", "--host", "a.example", "--json").stdout)["warnings"]
    assert f"programs of this user may read {secret}" in warning
