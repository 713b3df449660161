from __future__ import annotations

from typing import Any

import pytest

from proxy.sandbox.file_scope import MAX_NAMED, FileLimits, FileScope, PathSet, named_paths

LIMITS = FileLimits(
    read=PathSet(["/data", "/usr"]),
    write=PathSet(["/data/rw"]),
    always_read=PathSet(["/usr"]),
    fresh=PathSet(["/tmp"]),
    hidden=lambda path: path.endswith("/.env"),
)


@pytest.mark.parametrize(
    ("named", "path", "write", "permitted"),
    [
        (["/data/a"], "/data/a", False, True),
        (["/data/a"], "/data/a/deep", False, True),
        (["/data/a"], "/data/ab", False, False),
        (["/data/a"], "/data", False, False),
        (["/data/a"], "/data/a", True, False),
        (["/data/rw/x"], "/data/rw/x", True, True),
        (["/etc/shadow"], "/etc/shadow", False, False),
        (["/"], "/data/a", False, False),
        (["/data"], "/data/.env", False, False),
        ([], "/usr/lib/x", False, True),
        ([], "/usr/lib/x", True, False),
        ([], "/data/a", False, False),
        (None, "/data/a", False, True),
        (None, "/data/.env", False, False),
        (None, "/etc/shadow", False, False),
    ],
)
def test_what_may_be_opened(named: list[str] | None, path: str, write: bool, permitted: bool) -> None:
    assert FileScope(LIMITS, named).permits(path, write=write) is permitted


@pytest.mark.parametrize(
    ("path", "permitted"),
    [
        ("/data/rw/x.tmp", True),
        ("/data/rw/.x.swp", True),
        ("/data/rw/y.tmp", False),
        ("/data/rw/sub/x.tmp", False),
        ("/tmp/anything", True),
        ("/tmp/.env", False),
    ],
)
def test_what_may_be_made(path: str, permitted: bool) -> None:
    assert FileScope(LIMITS, ["/data/rw/x"]).permits_new(path) is permitted


def test_a_folder_on_the_way_to_what_was_named_may_be_listed() -> None:
    scope = FileScope(LIMITS, ["/data/a/b", "/etc/x"])
    assert [scope.permits_listing(path) for path in ("/data/a", "/data", "/data/other", "/", "/etc")] == [
        *(True, True, False, False, False),
    ]
    assert not FileScope(LIMITS, None).permits_listing("/data")


def test_folders_on_the_way_to_what_is_granted_are_known() -> None:
    scope = FileScope(LIMITS)
    assert [scope.leads_on(path) for path in ("/", "/data", "/data/rw", "/etc")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"path": "/a/../b//c"}, {"/b/c"}),
        ({"paths": ["/a", {"deep": "/b"}]}, {"/a", "/b"}),
        ({"path": "x/y"}, {"/work/x/y", "/root/x/y"}),
        ({"path": "~/x"}, {"/home/me/x"}),
        ({"uri": "file:///a%20b"}, {"/a b"}),
        ({"uri": "file://host/a"}, set()),
        ({"uri": "https://host/a"}, set()),
        ({"content": "/a\n/b"}, set()),
        ({"path": "/a\0b", "number": 3, "flag": True, "none": None}, set()),
        ({"path": "//etc/x"}, {"/etc/x"}),
        (None, set()),
        ({"path": "/" + "a" * 5000}, set()),
    ],
)
def test_paths_that_arguments_name(arguments: Any, named: set[str]) -> None:
    assert named_paths(arguments, ["/work", "/root"], "/home/me") == named


def test_arguments_name_only_so_many() -> None:
    assert len(named_paths([f"/{number}" for number in range(5000)], ["/"], "/")) == MAX_NAMED
    deep: Any = "/a"
    for _ in range(100):
        deep = [deep]
    assert named_paths(deep, ["/"], "/") == frozenset()
