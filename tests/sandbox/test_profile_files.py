"""Profiles as files: presets, paths, what they extend, and errors with line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxy.sandbox.profile import PRESETS
from proxy.sandbox.profile_files import SandboxProfileError, load_profile, parse_text, preset_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_read_and_has_the_base(name: str):
    profile = load_profile(name)
    assert "$PACKAGE" in profile.read
    assert "PATH" in profile.env
    assert profile.hosts == ()


def test_every_preset_is_named():
    assert {file.stem for file in preset_file("base").parent.iterdir()} == set(PRESETS)


def test_a_file_extends_presets_and_files_beside_it(tmp_path: Path):
    (tmp_path / "shared.yaml").write_text("extends: [git]\nread: [/srv/shared]\n")
    (tmp_path / "mine.yaml").write_text("extends: [./shared.yaml]\nread: [$CWD]\nnetwork: [a.example]\n")
    profile = load_profile(str(tmp_path / "mine.yaml"))
    assert {"/srv/shared", "$CWD", "$HOME/.gitconfig", "/usr/**"} <= set(profile.read)
    assert profile.hosts == ("a.example",)


def test_files_that_extend_each_other_end(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("extends: [./b.yaml]\nread: [/a]\n")
    (tmp_path / "b.yaml").write_text("extends: [./a.yaml]\nread: [/b]\n")
    assert {"/a", "/b"} <= set(load_profile(str(tmp_path / "a.yaml")).read)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"read: [here]\n", "x.yaml:1:8: read.0: 'here': write a full path"),
        (b"reed: [/a]\n", "x.yaml:1:1: reed: there is no field 'reed' here; did you mean 'read'"),
        (b"read: [/a\n", "x.yaml:"),
        (b"- read\n", "x.yaml:"),
        (b"mode: off\n", "x.yaml:1:1"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: bytes, said: str):
    with pytest.raises(SandboxProfileError) as caught:
        parse_text(text, "x.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["nodes", "/nowhere/x.yaml", "./x.yaml"])
def test_a_profile_that_does_not_exist_is_an_error(name: str, tmp_path: Path):
    with pytest.raises(SandboxProfileError, match="there is no sandbox profile"):
        load_profile(name, tmp_path)
