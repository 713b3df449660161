"""A path that is taken for plain has the views that the full reading gives it."""

import random

import pytest

from proxy.policy.arg_path import parse_arg
from proxy.policy.eval_context import EvalContext
from proxy.policy.path_fastpath import MAX_PATH, read_plain_path
from proxy.policy.path_operator import gather_paths
from proxy.policy.paths import read_path, read_path_fully

NAMES = [
    *("a", "c", "B", "ab", "a.b", ".git", ".", "..", "...", "a..b", "", " ", "a ", " a", "x y", "a,", ",a", "a=", "=b"),
    *("-", "+x", "_", "src", "main.py", "etc", "EVIL", "unc", "proc", "self", "root", "1", "task", "fd", "dev", "shm"),
    *(
        "private",
        "var",
        "tmp",
        "run",
        "lock",
        "log",
        "usr",
        "bin",
        "sbin",
        "lib",
        "lib64",
        "share",
        "system",
        "volumes",
    ),
    *("volumes", "data", "macintosh hd", "mnt", "d", "cygdrive", ".nofollow", ".resolve", ".vol", "runner", "Binder"),
    *("c:", "a|b", "~", "$x", "x$", "%2e", "*", "{a}", "[b]", "é", "\\", "file:", "@x", "'q'", "\n", "\t", "a;b"),
]


def test_what_is_plain_reads_as_it_does_in_full():
    chance = random.Random(11)
    plain = set()
    for _ in range(30_000):
        raw = "/".join(chance.choices(NAMES, k=chance.randint(1, 5)))
        raw = chance.choice(["", "", "/"]) + raw + chance.choice(["", "", "/"])
        if read_plain_path(raw) is not None:
            plain.add(raw)
            assert read_path(raw) == read_path_fully(raw), raw
    relative = {raw for raw in plain if raw[0] != "/"}
    assert len(relative) > 500
    assert len(plain - relative) > 500


@pytest.mark.parametrize(
    "raw",
    [
        "src/main.py",
        "README",
        "/srv/x",
        "/home/me/.ssh/id",
        "/usr/share/x",
        "/var/log/x",
        "a b/c",
        "lib-x/y.tar.gz",
        "-",
    ],
)
def test_the_short_way_to_a_condition_s_paths_gives_what_the_long_way_does(raw):
    short, long = EvalContext({"path": raw}), EvalContext({"path": raw, "PATH": raw})
    paths_of = gather_paths(parse_arg("path"))
    assert paths_of(short)._replace(plain=None) == paths_of(long)


@pytest.mark.parametrize("raw", ["", "/", "a", "a/b", "/c/x", ".env", "../x", "/bin/sh", "usr/bin/x", "ab" * MAX_PATH])
def test_what_may_name_more_than_one_file_is_not_plain(raw):
    assert read_plain_path(raw) is None
