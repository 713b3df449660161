"""Who else can read a source's file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.vault.source_files import exposure, is_own, source_files, to_hide
from proxy.vault.vault_file import CommandSource, EnvSource, FileSource, Source


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
    sources: list[Source] = [
        FileSource(path=str(tmp_path / "link")),
        EnvSource(variable="A"),
        CommandSource(argv=("true",)),
    ]
    assert source_files(sources) == (str(tmp_path / "link"), str(tmp_path / "real"))


def hidden(path: Path, *spared: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return to_hide([FileSource(path=str(path))], map(str, spared))


def test_a_folder_of_secrets_is_hidden_as_a_whole_and_others_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    token = folder / "token"
    token.touch()
    whole, alone = ((str(folder),), ()), ((), (str(token),))
    assert hidden(token, tmp_path) == whole
    assert hidden(token, folder) == hidden(token, folder / "work") == alone
    folder.chmod(0o750)
    assert hidden(token) == alone
    folder.chmod(0o700)
    (folder / "gh").mkdir()
    assert hidden(token) == alone
    assert hidden(folder / "none") == ((), ())


def test_of_a_kubernetes_mount_the_folder_is_hidden_in_which_links_are_swapped(tmp_path: Path) -> None:
    (tmp_path / "..one").mkdir()
    (tmp_path / "..one" / "token").touch()
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "token").symlink_to("..data/token")
    tmp_path.chmod(0o755)
    folders, files = hidden(tmp_path / "token")
    assert folders == (str(tmp_path),)
    assert all(path.startswith(f"{tmp_path}/") for path in files)
