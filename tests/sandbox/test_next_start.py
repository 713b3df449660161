"""What a sandboxed server does to its folders, to have more at its next start: by real kernels' refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.machine import Machine, a_machine
from tests.sandbox.test_sandbox_exec import USERS, boxed
from tests.support.system_needs import needs_namespaces

pytestmark = needs_namespaces
PROFILE: dict[str, Any] = {"extends": ["python"], "read": ["$ROOTS"], "write": ["$ROOTS"], "hide": ["**/.env"]}


@pytest.fixture
def machine() -> Iterator[Machine]:
    with a_machine() as made:
        yield made


def tried(machine: Machine, user: str, *steps: str) -> list[str]:
    """Start a server that takes each step below its root; return what became of it, or the name of its error."""
    code = "import errno, os\nfrom pathlib import Path\n" + "\n".join(
        f"try: print({step})\nexcept OSError as error: print(errno.errorcode[error.errno])" for step in steps
    )
    code = f"import os; os.chdir({str(machine.root)!r})\n{code}"
    done = boxed(machine, user, ["/usr/bin/python3", "-I", "-c", code], PROFILE, require=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("user", USERS)
def test_a_folder_above_a_hidden_file_does_not_get_another_name(machine: Machine, user: str) -> None:
    """A folder of packages is not searched: under such a name the file would be open at the next start."""
    (machine.root / "deep" / "below").mkdir()
    (machine.root / "deep" / "below" / ".env").write_text("secret")
    (machine.root / "other").mkdir()
    found = tried(
        machine,
        user,
        "os.rename('deep', 'node_modules')",
        "os.rename('deep/below', 'other/.git')",
        "os.rename('other', 'free')",
    )
    assert found == ["EBUSY", "EBUSY", "None"]
    assert (
        tried(machine, user, "Path('deep/.env').read_text()", "Path('deep/below/.env').read_text()") == ["EACCES"] * 2
    )


@pytest.mark.parametrize("user", USERS)
def test_files_move_in_and_out_of_such_a_folder(machine: Machine, user: str) -> None:
    (machine.root / "deep" / "plain").write_text("x")
    found = tried(
        machine,
        user,
        "os.rename('mine', 'deep/mine')",
        "os.rename('deep/plain', 'plain')",
        "os.link('plain', 'deep/linked')",
        "os.mkdir('deep/new') or os.rename('deep/new', 'new')",
    )
    assert found == ["None"] * 4
    assert (machine.root / "deep" / "mine").read_text() == "secret"


@pytest.mark.parametrize("user", USERS)
def test_a_folder_that_the_server_closes_to_us_is_hidden_and_not_skipped(machine: Machine, user: str) -> None:
    closed = machine.root / "deep"
    for mode in (0o000, 0o300):
        assert tried(machine, user, f"os.chmod('deep', {mode})") == ["None"]
        found = tried(machine, user, "os.chmod('deep', 0o700)", "Path('deep/.env').read_text()")
        # Root looks into it all the same, and covers the file alone.
        assert found[1] in ("EACCES", "ENOENT")
        closed.chmod(0o700)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("target", ["real", "../mine", "folder"])
def test_what_a_hidden_link_leads_to_is_hidden_and_the_link_stays(machine: Machine, user: str, target: str) -> None:
    folder = machine.root / "linked"
    (folder / "folder").mkdir(parents=True)
    for path in (folder / "real", folder / "folder" / "real"):
        path.write_text("secret")
    (folder / ".env").symlink_to(target)
    inside = f"Path('linked/{target}{'/real' if target == 'folder' else ''}').read_text()"
    found = tried(machine, user, inside, "os.unlink('linked/.env')", "os.rename('linked/.env', 'linked/x')")
    assert found[0] in ("EACCES", "ENOENT")
    assert found[1:] == ["EBUSY", "EBUSY"]
    assert str((folder / ".env").readlink()) == target
    assert (folder / "real").read_text() == "secret"
