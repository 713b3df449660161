"""The programs that try a runtime: found on the path only, and each says whether it was answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.doctor.runtime_programs import LOOPBACK, PROGRAMS, SAME_MACHINE, found


def test_only_what_is_on_the_path_is_tried(tmp_path: Path) -> None:
    assert list(found({"PATH": str(tmp_path)})) == []
    assert list(found({})) == []
    (tmp_path / "curl").write_text("#!/bin/sh\n")
    (tmp_path / "curl").chmod(0o755)
    assert [program.name for program in found({"PATH": str(tmp_path)})] == ["curl"]


def test_names_are_unique_and_hosts_are_this_machine() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))
    assert {program.host for program in PROGRAMS} == {LOOPBACK, SAME_MACHINE, "localhost"}


@pytest.mark.parametrize(
    ("name", "said", "answered"),
    [
        ("curl", "answered 502", True),
        ("curl", "curl: (56) closed\nanswered 000", False),
        ("git", "fatal: unable to access 'https://x/': The requested URL returned error: 502", True),
        ("git", "fatal: unable to access 'https://x/': SSL certificate problem", False),
        ("npm", "npm error code E502\n", True),
        ("npm", "npm error code ECONNRESET\nnpm error errno -104", False),
        ("node fetch", "it never answered 5 times", False),
    ],
)
def test_an_answer_is_told_from_a_failure(name: str, said: str, answered: bool) -> None:
    (program,) = (each for each in PROGRAMS if each.name == name)
    assert bool(program.answered.search(said)) is answered
