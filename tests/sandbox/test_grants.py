"""A profile becomes paths of this machine; secrets are never among them unless they are named."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from proxy.sandbox import grants
from proxy.sandbox.grants import Surroundings, expand
from proxy.sandbox.profile import SandboxProfile

if TYPE_CHECKING:
    from pathlib import Path

FILES = (
    *(
        ".ssh/id_rsa",
        ".ssh/known_hosts",
        ".aws/credentials",
        ".config/gcloud/db",
        ".config/git/config",
        ".bash_history",
    ),
    *("work/main.py", "work/.env", "work/deep/.env", "work/id_rsa", "other/x.py", "work/node_modules/p/.env"),
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def granted(home: Path, **lines: Any) -> grants.Grants:
    around = Surroundings(str(home), str(home / "work"), roots=(str(home / "work"), str(home / "other")))
    return expand(SandboxProfile.model_validate(lines), around, {"PATH": "/bin", "TOKEN": "t"})


def test_a_broad_rule_opens_no_secret(home: Path):
    for line in ("$HOME", "$HOME/**", "~", f"{home}/**", f"{home}/*"):
        found = granted(home, read=[line])
        below = [path for path in found.read if path.startswith(str(home))]
        assert f"{home}/work" in below, line
        assert f"{home}/.config/git/config" in below, line
        # A folder above a secret is never granted as a whole, so one that is made later is closed too.
        closed = {str(home), f"{home}/.config", f"{home}/.ssh", f"{home}/.aws", f"{home}/.bash_history"}
        assert closed.isdisjoint(found.read), line


def test_a_secret_is_opened_by_its_name_alone(home: Path):
    found = granted(home, read=["$HOME"], secrets=["~/.ssh/known_hosts"])
    assert f"{home}/.ssh/known_hosts" in found.read
    assert f"{home}/.ssh/id_rsa" not in found.read
    assert f"{home}/.ssh" not in found.read


def test_a_link_to_a_secret_is_one(home: Path):
    (home / "work/keys").symlink_to(home / ".ssh")
    assert granted(home, read=["$HOME/work/keys"]).read == ()


def test_hidden_files_are_found_inside_of_what_is_granted(home: Path):
    found = granted(home, read=["$ROOTS"], hide=["**/.env", "$HOME/other/x.py"])
    assert set(found.hidden) == {f"{home}/work/.env", f"{home}/work/deep/.env", f"{home}/work/id_rsa"}
    assert f"{home}/other" not in found.read  # split, because a file in it is hidden by its path


def test_what_a_profile_hides_it_hides_in_every_folder_that_it_names(home: Path):
    for name in (".tool/deep/.env", ".tool/id_rsa", ".cache/x/.env"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    lines = ["$HOME/.tool", "$HOME/.cache/x"]
    assert granted(home, read=lines, hide=["**/.env"]).hidden == (f"{home}/.tool/deep/.env",)
    assert granted(home, read=lines).hidden == ()
    assert f"{home}/.tool/deep/.env" not in granted(home, read=["$HOME"], hide=["**/.env"]).hidden


def test_sockets_that_are_not_listed_are_hidden_once_any_is(home: Path):
    (home / "work/.git").mkdir()
    paths = [home / "work/listed", home / "work/deep/other", home / "work/.git/watch"]
    for path in paths:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    found = granted(home, read=["$CWD"], sockets=[str(paths[0])])
    assert set(found.hidden) == {*map(str, paths[1:]), f"{home}/work/id_rsa"}


@pytest.mark.parametrize("name", ["", ".ssh", ".ssh/id_rsa"])
def test_what_is_no_socket_is_not_shown_as_one(home: Path, name: str):
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "id_rsa").write_text("key")
    with pytest.raises(ValueError, match="is no unix socket"):
        granted(home, sockets=[str(home / name)])


def test_a_server_may_have_sockets_of_its_own_without_one_of_the_machine(home: Path):
    found = granted(home, sockets=["$TMP"], write=["$TMP"])
    assert (found.unix, found.sockets) == (True, ())
    assert not granted(home, write=["$TMP"]).unix


def test_variables_stand_for_folders(home: Path):
    found = granted(home, read=["$CWD", "${ROOTS}/x.py"], write=["$TMP", "$HOME/cache/**", "$HOME/none"])
    assert set(found.read) == {f"{home}/work", f"{home}/other/x.py"}
    assert found.write == (f"{home}/cache",)
    assert (home / "cache").is_dir()
    assert found.temporary == ("/tmp", "/var/tmp")
    assert found.absent == (f"{home}/none",)


def test_a_file_to_be_written_is_made_unless_it_is_a_secret_or_its_folder_is_not_there(home: Path):
    lines = [
        "$HOME/memory.jsonl",
        "$HOME/.ssh/new.pem",
        "$HOME/nowhere/a.txt",
        "$HOME/work/main.py",
        "$HOME/dangling.x",
    ]
    (home / "dangling.x").symlink_to(home / ".ssh" / "made.pem")
    found = granted(home, write=lines)
    memory = home / "memory.jsonl"
    assert found.made == ((str(memory), memory.stat().st_ino),)
    assert str(memory) in found.write
    assert found.absent == (f"{home}/.ssh/new.pem", f"{home}/nowhere/a.txt")
    assert not (home / ".ssh" / "made.pem").exists()


def test_programs_come_from_the_path_and_the_environment_from_the_list(home: Path):
    (home / "other/tool").touch(mode=0o755)
    around = Surroundings(str(home), str(home), path=str(home / "other"))
    profile = SandboxProfile.model_validate({"exec": ["tool", "nothing", "to*"], "env": ["PATH"]})
    found = expand(profile, around, {"PATH": "/bin", "TOKEN": "t"})
    assert found.exec == (f"{home}/other/tool",)
    assert found.env == {"PATH": "/bin"}


def test_too_many_matches_are_refused_and_not_cut(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grants, "MAX_MATCHES", 0)
    with pytest.raises(ValueError, match="name the folder instead"):
        granted(home, read=["$HOME/*/x.py"])
    with pytest.raises(ValueError, match="too many files"):
        granted(home, read=["$CWD"])


@pytest.mark.parametrize("package", [(), ("work",), ("work/deep",)])
def test_what_is_hidden_is_hidden_in_a_package_among_the_users_files_too(home: Path, package: tuple[str, ...]):
    for name in ("deep/.env", "deep/id_rsa"):
        (home / "work" / name).parent.mkdir(exist_ok=True)
        (home / "work" / name).touch()
    work = str(home / "work")
    around = Surroundings(str(home), work, roots=(work,), package=tuple(str(home / each) for each in package))
    lines = {"read": ["$PACKAGE", "$ROOTS"], "hide": ["**/.env"]}
    found = expand(SandboxProfile.model_validate(lines), around, {})
    assert {f"{work}/deep/.env", f"{work}/deep/id_rsa"} <= set(found.hidden)
