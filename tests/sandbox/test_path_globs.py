"""Globs over paths."""

from __future__ import annotations

import pytest

from proxy.sandbox.path_globs import compile_path


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/a/*.py", "/a/x.py", True),
        ("/a/*.py", "/a/b/x.py", False),
        ("/a/**", "/a", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/ab", False),
        ("/a/**/x", "/a/x", True),
        ("/a/**/x", "/a/b/c/x", True),
        ("**/.env", "/a/b/.env", True),
        ("**/.env", "/a/.env.local", False),
        ("**/.env", "/a/x.env", False),
        ("**/secret", "/a/secret/deep", True),
        ("/a/[!x]", "/a/y", True),
        ("/a/[!x]", "/a/x", False),
        ("/a/x", "/a/x/below", True),
        ("/a/?", "/a/\n", True),
    ],
)
def test_a_glob_fits_whole_names(pattern: str, path: str, fits: bool):
    assert compile_path(pattern)(path) is fits
