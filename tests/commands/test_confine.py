"""`interlock confine`, before anything runs; tests/confine has the rest."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from proxy.commands import confine as module
from proxy.confine import launch
from proxy.confine.launch import Confinement
from tests.commands.conftest import Run
from tests.commands.test_exec import ca_folder
from tests.commands.test_proxy_address import leave_note

FOUND = ["--listen", "0.0.0.0:9", "--ca-folder", "."]


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Confinement]:
    """Confine nobody, and keep what would have been."""
    ca_folder(tmp_path)
    plans: list[Confinement] = []

    def confine(plan: Confinement, say: object) -> int:
        plans.append(plan)
        return 9

    monkeypatch.setattr(launch, "confine", confine)
    return plans


@pytest.mark.parametrize("words", [["confine"], ["confine", "run"]])
def test_run_may_be_left_out(words: list[str], run: Run, confined: list[Confinement], tmp_path: Path) -> None:
    done = run(*words, *FOUND, "--", "sh", "-c", "rules", HTTPS_PROXY="http://x", INTERLOCK_LOG_LEVEL="info")
    assert done.returncode == 9
    (plan,) = confined
    assert (plan.argv, plan.proxy, plan.folder) == (("sh", "-c", "rules"), ("127.0.0.1", 9), str(tmp_path))
    assert (plan.user, plan.group) == (os.geteuid(), os.getegid())
    assert not {"HTTPS_PROXY", "INTERLOCK_LOG_LEVEL"} & plan.environ.keys()
    assert plan.environ["SSL_CERT_FILE"] == str(tmp_path / "bundle.pem")


def test_the_proxys_own_files_are_covered_but_for_the_certificates(
    run: Run, confined: list[Confinement], tmp_path: Path
) -> None:
    leave_note(tmp_path / "state")
    for name in ("keys.json", "url"):
        (tmp_path / name).write_text("postgresql://localhost/x")
    (tmp_path / "interlock.yaml").write_text("checkpoint_file: /c.jsonl\nupstream_ca: /u.pem")
    environ = {"INTERLOCK_COMMIT_KEYS": str(tmp_path / "keys.json"), "INTERLOCK_DATABASE_URL_FILE": "url"}
    run("confine", "--", "sh", **environ)
    files = confined[0].files
    state = str(tmp_path / "state")
    assert state in files.folders
    assert {*files.given} == {f"{state}/ca/ca.pem", f"{state}/ca/bundle.pem"}
    assert files.secrets == (str(tmp_path / "keys.json"), str(tmp_path / "url"))
    assert {"/p.yaml", "/c.jsonl", "/u.pem", str(tmp_path / "interlock.yaml")} <= {*files.unwritable}


def test_a_proxy_that_is_named_has_its_token_file_and_the_state_around_its_certificates_covered(
    run: Run, confined: list[Confinement], tmp_path: Path
) -> None:
    (tmp_path / "other" / "keys").mkdir(parents=True)
    (tmp_path / "other" / "ca").mkdir()
    ca_folder(tmp_path / "other" / "ca")
    (tmp_path / "bot.token").write_text("ilk_x")
    named = ["--listen", "127.0.0.1:9", "--ca-folder", "other/ca", "--agent", "bot", "--token-file", "bot.token"]
    run("confine", *named, "--", "sh")
    files = confined[0].files
    assert str(tmp_path / "other") in files.folders
    assert {*files.given} == {str(tmp_path / "other" / "ca" / name) for name in ("ca.pem", "bundle.pem")}
    assert files.secrets == (str(tmp_path / "bot.token"),)


def test_a_socket_is_kept_where_it_is_one(run: Run, confined: list[Confinement], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "a.sock"))
        run("confine", *FOUND, "--keep-socket", "a.sock", "--", "sh")
    assert confined[0].files.kept == (str(tmp_path / "a.sock"),)
    done = run("confine", *FOUND, "--keep-socket", "none.sock", "--", "sh")
    assert (done.returncode, len(confined)) == (125, 1)
    assert "'none.sock' is not a socket" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "true"], 125, "interlock confine: no proxy runs on "),
        ([*FOUND, "--", "no-such-program"], 127, "interlock confine: cannot start 'no-such-program'"),
        ([*FOUND, "--", "/"], 126, "interlock confine: cannot start '/': is a directory"),
    ],
)
def test_what_is_not_started_is_told_by_message_and_exit_code(
    words: list[str], code: int, said: str, run: Run, confined: list[Confinement]
) -> None:
    done = run("confine", *words)
    assert (done.returncode, done.stdout, confined) == (code, "", [])
    assert done.stderr.startswith(said)


def test_a_system_that_refuses_is_explained(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ca_folder(tmp_path)

    def confine(*_: object) -> int:
        raise launch.ConfinementError("there is no program 'nft'")

    monkeypatch.setattr(launch, "confine", confine)
    done = run("confine", *FOUND, "--", "sh")
    assert done.returncode == 125
    assert "'sh' was not started: there is no program 'nft'; install it" in done.stderr


def test_rules_are_printed_for_nft(run: Run) -> None:
    done = run("confine", "rules", "--proxy-uid", "10001", "--port", "4", "--resolver-port", "5")
    assert done.stdout == module.ruleset(proxy_uid=10001, port=4, resolver_port=5)


def test_without_anything_it_helps(run: Run) -> None:
    assert "interlock confine -- COMMAND" in run("confine", "--help").stdout
