"""Paths become lines: by variables and folders, never broader than needed, and no line opens a home."""

from __future__ import annotations

import pytest

from proxy.learn.generalise import Places, generalise

PLACES = Places(
    "/home/ada", "/work", ("/home/ada/projects/x",), ("/opt/server", "/home/ada/projects/x/node"), real_home="/root"
)


@pytest.mark.parametrize(
    ("paths", "lines"),
    [
        (["/home/ada/projects/x/a", "/home/ada/projects/x/b/c"], ["$ROOTS"]),
        (["/opt/server/lib/a.js"], ["$PACKAGE"]),
        (["/home/ada/projects/x/node/a.js", "/home/ada/projects/x/a"], ["$PACKAGE", "$ROOTS"]),
        (["/home/ada/.cache", "/home/ada/.local/share", "/home/ada/.cache/tool/a"], ["$HOME/.cache/tool/**"]),
        (["/tmp/a", "/var/tmp/b"], ["$TMP"]),
        (["/home/ada/.cache/tool/a/b", "/home/ada/.cache/tool/c"], ["$HOME/.cache/tool/**"]),
        (["/home/ada/.local/share/tool/db"], ["$HOME/.local/share/tool/**"]),
        (["/root/.npm/_logs/1"], ["$HOME/.npm/**"]),
        (["/home/ada/memory.jsonl"], ["$HOME/memory.jsonl"]),
        (["/home/ada/notes/a"], ["$HOME/notes/a"]),
        ([f"/home/ada/notes/{n}" for n in range(3)], ["$HOME/notes/**"]),
        ([f"/home/ada/{n}" for n in range(9)], [f"$HOME/{n}" for n in range(9)]),
        ([f"/etc/{n}" for n in range(9)], [f"/etc/{n}" for n in range(9)]),
        ([f"/etc/fonts/{n}" for n in range(3)], ["/etc/fonts/**"]),
        (["/work/a"], ["$CWD/a"]),
        (["/x/node_modules/a/b.js", "/x/node_modules/c/d.js"], ["/x/node_modules/**"]),
        (["/sys/fs/cgroup/memory/81ab/limit"], ["/sys/fs/cgroup/**"]),
        (["/proc/self/status", "/dev/null", "/proc/7/environ"], []),
        (["/home/ada/.cache/tool/a", "/home/ada/.cache/other/b"], ["$HOME/.cache/other/**", "$HOME/.cache/tool/**"]),
    ],
)
def test_paths_become_lines(paths: list[str], lines: list[str]) -> None:
    assert sorted(generalise(paths, PLACES)) == sorted(lines)


@pytest.mark.parametrize(
    ("first", "second", "lines"),
    [
        ("/work/out/page-2026-11-19T22-29-52-484Z.yml", "/work/out/page-2026-11-20T01-02-03-1Z.yml", ["$CWD/out/**"]),
        ("/srv/data/store.jsonl.9f2fff499d980eab.tmp", "/srv/data/store.jsonl.03b1ff499d98aaaa.tmp", ["/srv/data/**"]),
        (
            "/srv/data/3f2a9c1e-0b6d-4c56-9a21-7e5d1c0a4b3f.log",
            "/srv/data/90b4e7aa-1111-4222-8333-0a1b2c3d4e5f.log",
            ["/srv/data/**"],
        ),
        ("/srv/data/1790000000.log", "/srv/data/1790000123.log", ["/srv/data/**"]),
        (
            "/srv/data/1790000000.log",
            "/srv/data/1790000123.txt",
            ["/srv/data/1790000000.log", "/srv/data/1790000123.txt"],
        ),
        (
            "/srv/data/1790000000.log",
            "/srv/other/1790000123.log",
            ["/srv/data/1790000000.log", "/srv/other/1790000123.log"],
        ),
        ("/srv/data/store.jsonl", "/srv/data/store.txt", ["/srv/data/store.jsonl", "/srv/data/store.txt"]),
        ("/srv/data/facade-1", "/srv/data/facade-2", ["/srv/data/facade-1", "/srv/data/facade-2"]),
        ("/home/ada/1790000000.log", "/home/ada/1790000001.log", ["$HOME/1790000000.log", "$HOME/1790000001.log"]),
        ("/etc/1790000000.conf", "/etc/1790000001.conf", ["/etc/1790000000.conf", "/etc/1790000001.conf"]),
    ],
)
def test_written_files_that_are_named_anew_each_time_stand_for_their_folder(
    first: str, second: str, lines: list[str]
) -> None:
    assert list(generalise([first, second], PLACES, written=True)) == lines
    alone = list(generalise([first], PLACES, written=True))
    assert alone[0].endswith(first.rpartition("/")[2])  # it may be a file like any other
    assert len(generalise([first, second], PLACES)) == 2


@pytest.mark.parametrize("path", ["/", "/etc", "/home/ada", "/root", "/home", "/var/lib"])
def test_a_home_and_a_folder_of_many_are_broad(path: str) -> None:
    assert PLACES.is_broad(path)


@pytest.mark.parametrize("path", ["/etc/fonts", "/home/ada/notes", "/home/ada/projects/x", "/opt/server", "/work"])
def test_a_folder_of_ones_own_is_not_broad(path: str) -> None:
    assert not PLACES.is_broad(path)


def test_each_line_knows_its_paths() -> None:
    assert generalise(["/tmp/a", "/tmp/b"], PLACES) == {"$TMP": ["/tmp/a", "/tmp/b"]}


@pytest.mark.parametrize(
    "path", ["/home/ada/.ssh/id_rsa", "/root/.aws/credentials", "/home/ada/.claude/x", "/etc/shadow", "/x/id_ed25519"]
)
def test_secrets_are_known_in_both_homes(path: str) -> None:
    assert PLACES.is_secret(path)
    assert not PLACES.is_secret("/root/.pyenv/versions/3/lib/a.py")
