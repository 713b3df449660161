"""scripts/install.py: what it shows while pip works, and what it says where pip fails."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import install
from tests.support.harness import REPOSITORY
from tests.support.timeouts import PATIENCE

SAID = """\
Collecting ada-url==1.27.0 (from -r requirements.lock (line 1))
  Downloading ada_url-1.27.0.whl (1.2 MB)
Requirement already satisfied: apsw==3.51 in ./x (from -r requirements.lock)
Processing ./zstandard.whl
Installing collected packages: zstandard, apsw, ada-url
Successfully installed ada-url-1.27.0
"""


def test_each_package_is_counted_while_pip_works() -> None:
    assert list(install.progress(SAID.splitlines(), 7)) == [
        "  1 of 7: ada-url",
        "  2 of 7: apsw",
        "  3 of 7: zstandard.whl",
        "  unpacking 3",
    ]


def test_the_packages_of_the_lock_are_counted() -> None:
    assert install.packages("a==1 \\\n    --hash=sha256:x==\nb-c.d==2 ; python_version < '4'\n# e==1\n") == 2
    assert install.packages((REPOSITORY / "requirements.lock").read_text()) > 50


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of one small package, which pip finds in a folder and puts into another."""
    wheel = tmp_path / "little-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("little.py", "")
        file.writestr("little-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: little\nVersion: 1\n")
        file.writestr("little-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("little-1.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
    lock = tmp_path / "little.lock"
    lock.write_text(f"little==1 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return lock


def test_pip_is_kept_quiet_and_its_words_are_kept(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.Screen, "SECONDS", 2 * PATIENCE)
    log, screen = tmp_path / "install.log", install.Screen()
    install.pip(Path(sys.executable), ["--require-hashes", "-r", str(lock)], log, screen, 1)
    assert (tmp_path / "target" / "little.py").exists()
    assert capsys.readouterr().out == "", "no terminal, and not long enough for a line"
    assert "Successfully installed little-1" in log.read_text()


def test_what_pip_refuses_ends_it_with_pips_last_words(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock.write_text("little==1 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(SystemExit) as ended:
        install.pip(Path(sys.executable), ["--require-hashes", "-r", str(lock)], tmp_path / "log", install.Screen(), 1)
    assert ended.value.code != 0
    said = capsys.readouterr().err
    assert "DO NOT MATCH THE HASHES" in said
    assert f"all it said is in {tmp_path / 'log'}" in said
    assert not (tmp_path / "target" / "little.py").exists()


def test_make_says_what_it_does_first() -> None:
    command = ["make", "--dry-run", "--always-make", "run"]
    # As from a shell: `make test` leaves its own flags in the environment.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    shown = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True).stdout
    assert shown.startswith('echo "Interlock: looking for Python')
    assert "scripts/install.py requirements.lock" in shown
    assert "requirements-dev" not in shown
