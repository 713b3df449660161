"""sed scripts that only edit text."""

import pytest

from proxy.policy.sed_script import is_harmless_sed


@pytest.mark.parametrize(
    "script",
    [
        "",
        "p",
        "s/a/b/",
        "s/e/w/gI",
        "s,a\\,e,b,2p",
        "1,5d",
        "/x/,$d",
        "/a\\/b/!d;p",
        "\\,x,d",
        "/x/{s/a/b/;p}",
        "$!N;P;D",
        ":a;N;ba",
        "1~2d",
        "y/abc/xyz/",
        "1i\\text with e and w",
        "# e comment\np",
        "5q",
        "s/a/b/;s/c/d/",
    ],
)
def test_editing_is_harmless(script):
    assert is_harmless_sed(script)


@pytest.mark.parametrize(
    "script",
    [
        "e",
        "1e x",
        "e x",
        "/a/e x",
        "$!{e x",
        "s/a/b/e",
        "s/a/b/ge",
        "s/a/b/w x",
        "s,a,b,we",
        "w x",
        "1W x",
        "p;e x",
        "p\ne x",
        "s/a/b/;1e x",
        "y/a/b/;e",
        "#c\ne x",
        "1i\\text\ne x",
        "R x",
        "s/a",
        "k",
        "/a",
        "s\\a\\b\\e",
    ],
)
def test_what_runs_or_writes_or_cannot_be_read_is_not(script):
    assert not is_harmless_sed(script)
