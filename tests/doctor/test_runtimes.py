"""Runtimes are tried for real: through a proxy, around it, without its certificate, and one that hangs."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.agent.env import ROOTS, ProxyEndpoint, change, through_proxy
from proxy.doctor.findings import CheckResult
from proxy.doctor.runtime_programs import NOT_HERE, PROGRAMS
from proxy.doctor.runtimes import Attempt, Listener, judge, try_runtimes
from tests.stdio.test_runner import wait_until_gone
from tests.support.harness import Interlock, environment, start_interlock
from tests.support.timeouts import PATIENCE

RUNTIMES = ("curl", "git", "npm", "node", "ruby", "php", "java", "go")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("doctor")) as interlock:
        yield interlock


@pytest.fixture
def environ(proxy: Interlock, tmp_path: Path) -> dict[str, str]:
    """The environment of `interlock exec`, with what the machine has of the runtimes."""
    path = tmp_path / "bin"
    path.mkdir()
    (path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (path / "python3").chmod(0o755)
    for name in ("sh", "env", *RUNTIMES):
        if there := shutil.which(name):
            (path / name).symlink_to(there)
    folder = proxy.ca_file.parent
    files = [str(folder / name) for name in ("ca.pem", "bundle.pem", "node-proxy.cjs")]
    return change(environment({"PATH": str(path)}), through_proxy(ProxyEndpoint(proxy.proxy_url, *files)))


def only(environ: dict[str, str], *kept: str) -> dict[str, str]:
    """Return the environment without the other runtimes."""
    for name in (*RUNTIMES, "python3"):
        if name not in kept:
            (Path(environ["PATH"]) / name).unlink(missing_ok=True)
    return environ


def results(environ: dict[str, str]) -> dict[str, CheckResult]:
    return {one.check.removeprefix("runtime "): one for one in try_runtimes(environ, PATIENCE, in_all=PATIENCE)}


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def test_what_obeys_the_environment_goes_through_and_what_does_not_is_named(environ: dict[str, str]) -> None:
    found = results(only(environ, "curl", "git", "npm", "node", "ruby", "php", "python3"))
    through = {name for name, one in found.items() if one.said == "goes through the proxy"}
    around = {name for name, one in found.items() if one.said.startswith("goes around the proxy")}
    assert through >= {"curl", "python urllib"}
    assert through <= {"curl", "git", "npm", "ruby", *(f"python {x}" for x in ("urllib", "requests", "httpx"))} | {
        *(f"node {x}" for x in ("fetch", "https", "undici"))
    }
    assert around <= {"php streams", "python aiohttp"}
    assert through | around == found.keys(), found
    assert {one.state for name, one in found.items() if name in around} <= {"warn"}


def test_a_runtime_without_the_variables_is_seen_to_go_around(environ: dict[str, str]) -> None:
    bare = {name: value for name, value in only(environ, "curl", "python3").items() if "proxy" not in name.lower()}
    found = results(bare)
    assert found["curl"].said.startswith("goes around the proxy")
    assert found["python urllib"].said.startswith("goes around the proxy")
    assert "interlock confine" in found["curl"].mend


def test_a_runtime_without_the_certificate_is_seen_to_refuse_it(environ: dict[str, str]) -> None:
    found = results(only(environ, "curl", "python3") | dict.fromkeys(ROOTS, "/dev/null"))
    assert found["curl"].said.startswith("refuses the proxy's certificate: ")
    assert found["python urllib"].said.startswith("refuses the proxy's certificate: ")
    assert found["curl"].state == "warn"


def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    (tmp_path / "curl").write_text(f"#!/bin/sh\n{shutil.which('sleep')} 600 &\necho $! > {note}\nwait\n")
    (tmp_path / "curl").chmod(0o755)
    (one,) = try_runtimes({"PATH": str(tmp_path)}, 1.0)
    assert (one.state, one.said) == ("warn", "not known: no answer within 1 s")
    wait_until_gone(int(note.read_text()))


def test_nothing_on_the_path_is_no_failure(tmp_path: Path) -> None:
    assert [one.state for one in try_runtimes({"PATH": str(tmp_path)})] == ["ok"]


def test_what_is_not_installed_has_no_line_and_other_failures_say_their_last_words() -> None:
    curl = PROGRAMS[0]
    assert judge(curl, Attempt(NOT_HERE, "", dialled=False)) is None
    other = judge(curl, Attempt(7, "one\ncurl: (7) could not connect\n", dialled=False))
    assert other is not None
    assert other.said == "gets no answer through the proxy: curl: (7) could not connect"
    assert judge(curl, Attempt(0, "answered 407", dialled=False)) is not None


def test_the_listener_closes_at_once_and_knows_what_was_dialled() -> None:
    with Listener(2) as listener:
        with socket.create_connection(("127.0.0.1", listener.ports[1]), PATIENCE) as client:
            client.settimeout(PATIENCE)
            assert client.recv(1) == b""
        assert (listener.was_dialled(0), listener.was_dialled(1)) == (False, True)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", listener.ports[1]), PATIENCE)
