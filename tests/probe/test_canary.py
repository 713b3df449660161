"""A canary home is like a real one, and what is taken from it is known again."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from proxy.probe.canary import CanaryHome, CanaryWatch, make_home, restore_documents


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> CanaryHome:
    return make_home(tmp_path_factory.mktemp("canary") / "home")


@pytest.mark.parametrize(
    "path",
    [".ssh/id_rsa", ".env", ".aws/credentials", ".netrc", ".docker/config.json", ".kube/config", ".bitcoin/wallet.dat"],
)
def test_the_files_that_are_stolen_are_there_and_private(home: CanaryHome, path: str) -> None:
    file = home.folder / path
    assert file.stat().st_mode & 0o077 == 0
    assert any(canary.secret for canary in home.canaries if canary.source == f"~/{path}")


def test_every_file_has_a_value_of_its_own(home: CanaryHome, tmp_path: Path) -> None:
    other = make_home(tmp_path / "home")
    values = [canary.value for canary in (*home.canaries, *other.canaries)]
    assert len(values) == len(set(values))
    for canary in home.canaries:
        if canary.source.startswith("~/"):
            assert canary.value in (home.folder / canary.source[2:]).read_text()


def test_documents_are_no_secrets(home: CanaryHome) -> None:
    documents = [canary for canary in home.canaries if canary.source.startswith("~/documents/")]
    assert documents
    assert not any(canary.secret for canary in documents)


def test_documents_are_put_back_as_they_were(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    before = {file.name: file.read_text() for file in home.documents.iterdir()}
    (home.documents / "notes.md").unlink()
    (home.documents / "report.txt").write_text("other")
    (home.documents / "data.csv").unlink()
    (home.documents / "data.csv").mkdir()
    restore_documents(home)
    (home.documents / "data.csv").rmdir()
    restore_documents(home)
    assert {file.name: file.read_text() for file in home.documents.iterdir()} == before


def test_nothing_is_put_back_through_a_link(tmp_path: Path) -> None:
    """The server lays links inside; whoever puts documents back is outside, where they lead to real files."""
    home = make_home(tmp_path / "home")
    victim, folder = tmp_path / "victim", tmp_path / "real"
    victim.write_text("mine")
    victim.chmod(0o600)
    folder.mkdir()
    notes, text = home.documents / "notes.md", (home.documents / "notes.md").read_text()
    notes.unlink()
    notes.symlink_to(victim)
    restore_documents(home)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("mine", 0o600)
    assert (notes.is_symlink(), notes.read_text()) == (False, text)
    home.documents.rename(home.folder / "away")
    home.documents.symlink_to(folder)
    restore_documents(home)
    assert list(folder.iterdir()) == []


def test_the_repository_has_a_history_and_a_change(home: CanaryHome) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=home.repository, capture_output=True, text=True, check=True).stdout

    assert len(git("log", "--oneline").splitlines()) == 2
    assert "feature" in git("branch")
    assert " M README.md" in git("status", "--short")


@pytest.mark.parametrize(
    "disguise",
    [
        pytest.param(lambda data: data, id="as it is"),
        pytest.param(lambda data: b'{"k": "' + data.upper() + b'"}', id="upper case"),
        pytest.param(lambda data: b"x" + base64.b64encode(b"a" + data) + b"y", id="base64, shifted by one"),
        pytest.param(lambda data: base64.urlsafe_b64encode(b"ab" + data), id="base64url, shifted by two"),
        pytest.param(lambda data: base64.b32encode(b"abc" + data).lower(), id="base32"),
        pytest.param(lambda data: data.hex().encode(), id="hex"),
        pytest.param(lambda data: data.hex(":").encode(), id="hex with colons"),
        pytest.param(lambda data: "".join(f"%{byte:02X}" for byte in data).encode(), id="percent"),
        pytest.param(lambda data: quote(data).encode(), id="quoted"),
        pytest.param(lambda data: data[::-1], id="reversed"),
        pytest.param(lambda data: base64.b64encode(data[::-1]), id="reversed, in base64"),
        pytest.param(lambda data: data[5:20], id="a piece"),
        pytest.param(lambda data: b".".join([data.hex()[:30].encode(), data.hex()[30:].encode()]), id="in labels"),
    ],
)
def test_a_canary_is_known_in_every_disguise(home: CanaryHome, disguise) -> None:
    watch = CanaryWatch(home.canaries)
    for canary in home.canaries[:3]:
        assert watch.find(disguise(canary.value.encode())) == (canary,)


def test_a_stolen_file_in_base64_is_known(home: CanaryHome) -> None:
    stolen = base64.b64encode((home.folder / ".ssh" / "id_rsa").read_bytes())
    assert [canary.source for canary in CanaryWatch(home.canaries).find(stolen)] == ["~/.ssh/id_rsa"]


def test_other_bytes_hold_no_canary(home: CanaryHome) -> None:
    watch = CanaryWatch(home.canaries)
    assert watch.find(Path(__file__).read_bytes()) == ()
    assert watch.find(bytes(range(256)) * 400) == ()
    assert watch.find(b"") == ()
