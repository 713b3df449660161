"""The files that a string may name."""

import pytest

from proxy.policy.paths import MAX_PATH, is_search, join_parts, read_path, read_path_fully, search_endings


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("/etc/passwd", "/etc/passwd/"),
        ("//etc/./x/../passwd", "/etc/passwd/"),
        ("/../../etc", "/etc/"),
        ("file:///etc/passwd?x#y", "/etc/passwd/"),
        ("c:\\Windows\\x", "/C:/Windows/x/"),
        ("/proc/self/root/etc/passwd", "/etc/passwd/"),
        ("/a b", "/a b/"),
    ],
)
def test_a_careful_server_opens_one_file(text, exact):
    assert exact in read_path(text).exact


@pytest.mark.parametrize(
    "text",
    [
        "/tmp/%2e%2e/etc/passwd",
        "/ETC/passwd",
        "/etc./passwd",
        "/private/etc/passwd",
        "/tmp/x,/etc/passwd",
        "--file=/etc/passwd",
        '"/etc/passwd"',
        "....//....//etc/passwd",
        "/tmp/..;/etc/passwd",
        "url:file:///etc/passwd",
        "/mnt/c/etc/passwd",
        "\\\\localhost\\c$\\etc\\passwd",
        "/e\u200btc/passwd",
        "/tmp/\u2025/etc/passwd",
        "etc/passwd",
        "/tmp/a\n/etc/passwd",
        "/etc::$INDEX_ALLOCATION/passwd",
    ],
)
def test_what_a_careless_server_would_open_is_among_the_folded_paths(text):
    assert "/etc/passwd/" in read_path(text).folded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("~+/x", "replaces by a folder"),
        ("$ELSEWHERE/x", "variable"),
        ("${HOME:-/etc}/x", "variable"),
        ("%SYSTEMROOT%\\x", "variable"),
        ("/tmp/x\0.txt", "NUL"),
        ("/tmp/%ff", "UTF-8"),
        ("/proc/self/fd/3", "descriptor"),
        ("/proc/net/../x", "/proc"),
        ("/.vol/1/2", "inode"),
        ("ab:" * 20 + "/x", "schemes"),
        ("/x/" + "../y/" * 40, "steps up"),
        ("/" + "x" * MAX_PATH, "longer than"),
    ],
)
def test_a_path_that_only_the_server_could_resolve_is_a_problem(text, words):
    assert words in read_path(text).problem


@pytest.mark.parametrize(
    ("text", "relative"),
    [("src/x", "src/x/"), ("./a/../b", "b/"), ("../x", "../"), ("a/../../x", "../"), (".", "./")],
)
def test_a_relative_path_is_told_from_one_that_leaves_its_folder(text, relative):
    assert relative in read_path(text).relative


def test_patterns_are_told_from_searches_for_a_kind_of_file():
    assert read_path("**/*.py").searches == ("/**/*.py/",)
    assert read_path("/**/*.py").globs == ("/**/*.py/",)
    assert read_path("**/*.pem").globs == ("/**/*.pem/",)
    assert is_search("**/*.py", ("**", "*.py"))
    assert not is_search("**/*.p?", ("**", "*.p?"))
    assert search_endings("*.{ts,tsx}") == ["ts", "tsx"]
    assert search_endings("x.py") == ["py"]
    assert search_endings("shadow") == []
    assert search_endings(".x.py") == []


def test_the_fast_path_reads_as_the_full_reading():
    for text in ("/srv/x", "src/main.py", "/home/me/.ssh/id"):
        assert read_path(text) == read_path_fully(text)
    assert join_parts(("a", "b")) == "/a/b/"
    assert join_parts(()) == "/"
