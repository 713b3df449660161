from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxy.sandbox.boundaries import boundaries
from proxy.sandbox.grants import Surroundings
from proxy.sandbox.profile import SandboxProfile
from proxy.sandbox.profile_files import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from proxy.sandbox.violations import Boundaries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("home/.ssh", "home/project/sub", "home/shared", "package", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/project/a", "home/project/.env", "home/.ssh/known_hosts", "home/.ssh/id_rsa", "home/config"):
        (tmp_path / name).write_text("x")
    (tmp_path / "home" / "link").symlink_to("shared")
    return tmp_path.resolve()


@pytest.fixture
def granted(folder: Path) -> Boundaries:
    profile = SandboxProfile(
        extends=["python"],
        read=["$HOME/project", "$HOME/link", "$HOME/config"],
        write=["$HOME/project/sub"],
        hide=["**/.env"],
        secrets=["~/.ssh/known_hosts"],
        network=["api.example.com"],
    )
    home = str(folder / "home")
    around = Surroundings(home, home, tmp=(str(folder / "tmp"),), package=(str(folder / "package"),))
    return boundaries(resolve(profile), around, {})


@pytest.mark.parametrize(
    ("path", "grants", "always"),
    [
        ("home/project/a", True, False),
        ("home/shared/x", True, False),  # behind a link
        ("home/config", True, True),  # a single file
        ("home/.ssh/known_hosts", True, True),  # a secret by its name
        ("home/.ssh/id_rsa", False, False),
        ("home/project/.env", False, False),
        ("package/code.py", True, True),
        ("tmp/x", False, False),  # only what the server made
        ("home/other", False, False),
    ],
)
def test_what_a_profile_grants_to_read(
    granted: Boundaries, folder: Path, path: str, grants: bool, always: bool
) -> None:
    assert granted.files.grants(str(folder / path), False) is grants
    assert granted.files.always(str(folder / path), False) is always


def test_what_a_profile_grants_to_write(granted: Boundaries, folder: Path) -> None:
    assert granted.files.grants(str(folder / "home/project/sub/new"), True)
    assert not granted.files.always(str(folder / "home/project/sub/new"), True)
    assert not granted.files.grants(str(folder / "home/project/a"), True)
    assert str(folder / "tmp/x") in granted.files.fresh


def test_the_system_is_open_at_all_times_and_hosts_are_listed(granted: Boundaries) -> None:
    assert granted.files.always("/usr/lib/x.so", False)
    assert granted.hosts == ("api.example.com",)


def test_the_line_that_hides_a_file_is_named(granted: Boundaries, folder: Path) -> None:
    assert granted.hidden_by(str(folder / "home/project/.env")) == "hide: **/.env"
    assert granted.hidden_by(str(folder / "home/.ssh/id_rsa")) == "it is a secret that secrets does not name"
    assert granted.hidden_by(str(folder / "home/project/a")) is None
