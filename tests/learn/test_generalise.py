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
    ("path", "line"),
    [
        ("/work/out/page-2026-11-19T22-29-52-484Z.yml", "$CWD/out/**"),
        ("/srv/data/store.jsonl.9f2fff499d980eab.tmp", "/srv/data/**"),
        ("/srv/data/1790000000.log", "/srv/data/**"),
        ("/srv/data/store.jsonl", "/srv/data/store.jsonl"),
        ("/srv/data/facade-1", "/srv/data/facade-1"),
        ("/work/page-2026-11-19.yml", "$CWD/page-2026-11-19.yml"),
        ("/home/ada/1790000000.log", "$HOME/1790000000.log"),
        ("/etc/1790000000.conf", "/etc/1790000000.conf"),
    ],
)
def test_a_written_file_that_is_named_anew_each_time_stands_for_its_folder(path: str, line: str) -> None:
    assert list(generalise([path], PLACES, written=True)) == [line]
    assert next(iter(generalise([path], PLACES))).endswith(path.rpartition("/")[2])


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
