"""From grants to mounts and rules."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from proxy.sandbox.grants import Grants
from proxy.sandbox.plan import SandboxPlan
from proxy.sandbox.server_process import Launch

if TYPE_CHECKING:
    from pathlib import Path


def plan(tmp_path: Path, **grants: tuple[str, ...]) -> SandboxPlan:
    return SandboxPlan(Launch("/bin/true", ("true",)), Grants(**grants), str(tmp_path), given={"/etc/hosts": "x"})


def test_links_are_kept_and_files_are_shown_where_they_really_are(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    view = plan(tmp_path, read=(str(tmp_path / "link"),)).spec()["view"]
    assert (str(tmp_path / "real"), "read") in view["files"]
    assert view["links"][str(tmp_path / "link")] == "real"


def test_a_folder_that_is_written_is_not_shown_again_for_reading(tmp_path: Path):
    (tmp_path / "root" / "deep").mkdir(parents=True)
    root, deep = str(tmp_path / "root"), str(tmp_path / "root" / "deep")
    files = plan(tmp_path, read=(deep,), write=(root,)).spec()["view"]["files"]
    assert [each for each in files if each[0].startswith(root)] == [(root, "write")]
    files = plan(tmp_path, read=(root,), write=(deep,)).spec()["view"]["files"]
    assert [each for each in files if each[0].startswith(root)] == [(root, "read"), (deep, "write")]


def test_a_link_that_the_server_could_have_made_opens_nothing(tmp_path: Path):
    for name in ("root", "outside"):
        (tmp_path / name).mkdir()
    root, outside, link = (str(tmp_path / name) for name in ("root", "outside", "root/link"))
    (tmp_path / "root" / "link").symlink_to(outside)
    (tmp_path / "linked").symlink_to(root)
    for lines in ({"write": (root, link)}, {"write": (root,), "read": (f"{link}/x", link)}):
        files = plan(tmp_path, **lines).spec()["view"]["files"]
        assert [each for each in files if each[0].startswith(str(tmp_path))] == [(root, "write")]
    # A link beside is its owner's.
    files = plan(tmp_path, write=(str(tmp_path / "linked"),)).spec()["view"]["files"]
    assert (root, "write") in files


def test_no_program_and_no_socket_is_opened_by_such_a_link(tmp_path: Path):
    for name in ("root/bin", "outside"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("root/tool", "outside/key"):
        (tmp_path / name).touch()
    root, key = tmp_path / "root", str(tmp_path / "outside" / "key")
    (root / "bin" / "tool").symlink_to("../tool")
    (root / "bin" / "made").symlink_to(key)
    (root / "made.sock").symlink_to(key)
    (root / "bin" / "python3").symlink_to("/usr/bin/env")
    lines = {
        "read": ("/usr",),
        "exec": tuple(f"{root}/bin/{name}" for name in ("tool", "made", "python3")),
        "sockets": (f"{root}/made.sock",),
    }
    spec = plan(tmp_path, write=(str(root),), **lines).spec()
    assert key not in [path for path, _ in (*spec["view"]["files"], *spec["rules"])]
    # A link to what it may write or read anyway opens nothing.
    assert {(f"{root}/tool", "exec"), (os.path.realpath("/usr/bin/env"), "exec")} <= set(spec["rules"])


def test_a_file_that_is_given_is_not_the_machines(tmp_path: Path):
    spec = plan(tmp_path, read=("/etc/hosts",)).spec()
    assert "/etc/hosts" not in [path for path, _ in spec["view"]["files"]]
    assert spec["view"]["given"] == {"/etc/hosts": "x"}


def test_only_the_server_the_listed_programs_and_loaders_are_executed(tmp_path: Path):
    rules = plan(tmp_path, read=("/usr",), exec=("/usr/bin/env",)).spec()["rules"]
    executed = {path for path, kind in rules if kind in ("exec", "own")}
    assert "/usr/bin/env" in executed
    assert "/usr" not in executed
    assert ("/usr", "read") in rules
