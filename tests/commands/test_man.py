"""The manual page: current, well-formed, and whole."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from proxy.commands.man import _text
from tests.commands.conftest import Run
from tests.support.command_tree import commands, options
from tests.support.harness import REPOSITORY

PAGE = REPOSITORY / "man" / "interlock.1"


def test_the_page_in_the_repository_is_what_the_commands_are(run: Run) -> None:
    done = run("man")
    assert done.stdout == PAGE.read_text(), "the commands changed: `make man` writes the page anew"
    assert json.loads(run("man", "--json").stdout) == {"page": done.stdout}


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_in_it(name: str) -> None:
    section = PAGE.read_text().partition(f".SS {_text(name)}\n")[2].partition("\n.S")[0]
    assert section
    for flag in options(name):
        if flag.startswith("-"):
            assert rf"\fB{_text(flag)}\fR" in section


def test_it_is_well_formed() -> None:
    """By mandoc where it is installed, and by groff, which man itself uses."""
    checked = []
    for words in (["mandoc", "-Tlint", "-Wwarning"], ["groff", "-man", "-Tutf8", "-ww", "-z"]):
        if shutil.which(words[0]):
            done = subprocess.run([*words, str(PAGE)], capture_output=True, text=True, timeout=60, check=False)
            assert (done.stdout, done.stderr) == ("", "")
            checked.append(words[0])
    assert checked, "install groff or mandoc"


@pytest.mark.parametrize(
    ("text", "roff"),
    [(".x", r"\&.x"), ("'x", r"\(aqx"), ("a\\b", r"a\eb"), ("--json", r"\-\-json"), ("~/x", r"\(ti/x")],
)
def test_text_is_text_and_never_a_command_to_roff(text: str, roff: str) -> None:
    assert _text(text) == roff
