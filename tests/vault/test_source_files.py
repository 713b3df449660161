"""Who else can read a source's file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.vault.source_files import exposure, is_own, source_files
from proxy.vault.vault_file import CommandSource, EnvSource, FileSource


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter; the tests' own are their user's alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize(
    ("mode", "above", "said"),
    [
        (0o644, 0o755, "everybody on this machine may read"),
        (0o666, 0o755, "everybody on this machine may change"),
        (0o602, 0o711, "everybody on this machine may change"),
        (0o640, 0o755, "its group may read"),
        (0o660, 0o750, "its group may change"),
        (0o644, 0o750, "its group may read"),
        (0o644, 0o700, None),
        (0o644, 0o744, None),
        (0o600, 0o755, None),
    ],
)
def test_what_the_modes_of_file_and_folder_say(folder: Path, mode: int, above: int, said: str | None) -> None:
    path = folder / "in" / "a secret"
    path.parent.mkdir()
    path.touch()
    path.chmod(mode)
    path.parent.chmod(above)
    found = exposure(str(path))
    assert (found[0].partition(f" {path}")[0] if found else None) == said
    assert found is None or found[1] == f"chmod 600 '{path.resolve()}'"


def test_the_file_behind_links_counts(folder: Path) -> None:
    (folder / "real").touch(0o600)
    (folder / "real").chmod(0o604)
    (folder / "link").symlink_to("real")
    found = exposure(str(folder / "link"))
    assert found is not None
    assert found[1] == f"chmod 600 {folder / 'real'}"


def test_one_that_is_not_there_is_open_to_nobody(folder: Path) -> None:
    assert exposure(str(folder / "none")) is None
    assert not is_own(str(folder / "none"))
    (folder / "one").touch(0o600)
    assert is_own(str(folder / "one"))


def test_files_are_named_as_given_and_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    sources = [FileSource(path=str(tmp_path / "link")), EnvSource(variable="A"), CommandSource(argv=("true",))]
    assert source_files(sources) == (str(tmp_path / "link"), str(tmp_path / "real"))
