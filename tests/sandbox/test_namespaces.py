"""The steps that the kernel may refuse; what they hold is tested in a sinkhole and in confinement."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.sandbox.namespaces import NamespaceError, listening_sockets, mount, run_program, sockets_below
from tests.sandbox.equipped import SEARCH
from tests.support.harness import REPOSITORY
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE


def test_unix_sockets_that_listen_are_found(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert str(path) in listening_sockets()
        assert str(path) in sockets_below(str(tmp_path.parent), 2)
        assert sockets_below(str(tmp_path.parent), 1) == []


def test_so_are_those_that_were_named_anew_or_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as linked, socket.socket(socket.AF_UNIX) as near:
        linked.bind(str(tmp_path / "master.x7"))
        (tmp_path / "master").hardlink_to("master.x7")
        Path("master.x7").unlink()
        near.bind("near.sock")
        linked.listen()
        near.listen()
        assert {str(tmp_path / "master"), str(tmp_path / "near.sock")} <= {*listening_sockets()}


CLOSED = """
import os, resource, sys
sys.path.insert(0, sys.argv[1])
from proxy.sandbox.namespaces import close_from
os.dup2(0, 900)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
close_from(3)
print(*sorted(os.listdir("/proc/self/fd")))
"""


def test_files_are_closed_though_the_limit_was_lowered_below_their_number() -> None:
    command = [sys.executable, "-I", "-c", CLOSED, str(REPOSITORY)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last is what the list is read by


def test_a_program_that_is_not_there_or_fails_is_told() -> None:
    with pytest.raises(NamespaceError, match="there is no program 'no-such-program'"):
        run_program("no-such-program")
    with pytest.raises(NamespaceError, match=r"cat /no/such/file: .*No such file"):
        run_program("cat", "/no/such/file")


def test_a_mount_that_is_refused_is_told_with_its_place() -> None:
    with pytest.raises(NamespaceError, match="mounting a view on /no/such/place: "):
        mount("/", "/no/such/place", None, 0x1000)


RENOUNCED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from proxy.sandbox.namespaces import capability_sets, enter_user_namespace, renounce_capabilities
enter_user_namespace(0, 0)
assert capability_sets()["CapEff"]
renounce_capabilities()
os.execvp("cat", ["cat", "/proc/self/status"])
"""


@needs_namespaces
def test_a_capability_that_was_renounced_is_not_had_again_by_being_root() -> None:
    command = [sys.executable, "-I", "-c", RENOUNCED, str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    told = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert told["Uid"].split()[0] == "0", done.stderr
    assert {told[kind] for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert told["NoNewPrivs"] == "1"


REFUSED = """
import sys; sys.path.insert(0, sys.argv[1])
from proxy.sandbox.namespaces import NamespaceError
from proxy.sandbox import namespaces
try:
    namespaces.isolate()
except NamespaceError as error:
    print(error)
"""


@needs("unshare", "setpriv")
@needs_namespaces
def test_a_refusal_of_the_system_is_told() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$@"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", forbid, "sh", sys.executable, "-I", "-c", REFUSED, str(REPOSITORY)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "namespaces: Operation not permitted" in done.stdout, done.stderr


KEYS = f"""
import sys
sys.path.insert(0, sys.argv[1])
from proxy.sandbox import namespaces
namespaces.isolate()
namespaces.mount(None, "/", None, namespaces.MS_REC | namespaces.MS_PRIVATE)
namespaces.mount_proc()
{SEARCH}
"""


@needs("ip", "unshare")
@needs_namespaces
def test_a_probed_server_does_not_have_the_launchers_keys() -> None:
    for code, found in ((SEARCH, "found True"), (KEYS, "not found False")):
        command = [sys.executable, "-m", "tests.sandbox.equipped", sys.executable, "-c", code, str(REPOSITORY)]
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            start_new_session=True,
        )
        assert done.stdout.strip() == found, done.stderr
