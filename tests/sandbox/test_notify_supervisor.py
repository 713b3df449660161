"""The supervisor's thread: calls that begin and end, races, and what happens when it is gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import TYPE_CHECKING

import pytest

from proxy.sandbox import notify_supervisor
from proxy.sandbox.namespaces import drop_capabilities
from proxy.sandbox.notify_supervisor import Supervisor
from tests.sandbox.supervised import limits, supervised
from tests.support.timeouts import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ = "print(open(path).read())"
TRIES = 10_000
ROUNDS = 10
RENAME_EXCHANGE = 2
# A child changes the path in memory all the time, while the parent opens it.
RACE = """
import mmap, signal
shared = mmap.mmap(-1, 4096)
paths = [each.encode() + bytes(1) for each in paths]
child = os.fork()
if not child:
    while True:
        for each in paths:
            shared[:len(each)] = each
address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
shared[:len(paths[0])] = paths[0]
number = {'x86_64': 257, 'aarch64': 56}[os.uname().machine]
found = {}
for _ in range(tries):
    got = libc.syscall(ctypes.c_long(number), ctypes.c_long(-100), ctypes.c_void_p(address), ctypes.c_long(0))
    if got < 0:
        said = 'errno'
    else:
        said = os.read(got, 99).decode()
        os.close(got)
    found[said] = found.get(said, 0) + 1
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print(sorted(found), sum(found.values()))
"""


@contextlib.contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names on the disk, as fast as it goes."""
    libc, done = ctypes.CDLL(None), threading.Event()
    names = os.fsencode(one), os.fsencode(other)

    def work() -> None:
        while not done.is_set():
            libc.renameat2(-100, names[0], -100, names[1], RENAME_EXCHANGE)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_race_of_paths_in_memory_and_links_on_the_disk_lets_nothing_out(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    named, secret = folder / "named", folder / "secret"
    named.mkdir()
    secret.write_text("secret")
    (named / "ok").write_text("fine")
    (named / "flip").symlink_to("ok")
    (named / "flop").symlink_to("../secret")
    paths = [str(named / "ok"), str(named / "flip"), str(secret), f"{named}/../secret", str(named / "flop")]
    with supervised(limits(folder)) as server:
        server.supervisor.begin_call("call", frozenset({str(named)}))
        with exchanging(named / "flip", named / "flop"):
            for _ in range(ROUNDS):
                told = server.run(RACE, paths=paths, tries=TRIES)
                if told not in (f"['errno'] {TRIES}", f"['fine'] {TRIES}"):  # else nothing raced: the child did not run
                    break
    # Both happened, and nothing else did.
    assert told == f"['errno', 'fine'] {TRIES}"


def test_only_what_the_calls_in_flight_named_is_open(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    one, two = folder / "one", folder / "two"
    one.write_text("1")
    two.write_text("2")
    with supervised(limits(folder)) as server:

        def opened() -> tuple[str, str]:
            return server.run(READ, path=str(one)), server.run(READ, path=str(two))

        assert opened() == ("EACCES", "EACCES")  # before any call
        server.supervisor.begin_call("a", frozenset({str(one)}))
        assert opened() == ("1", "EACCES")
        server.supervisor.begin_call("b", frozenset({str(two)}))
        assert opened() == ("1", "2")  # in parallel: what any of them named
        assert server.supervisor.calls() == ("a", "b")
        server.supervisor.end_call("a")
        assert opened() == ("EACCES", "2")
        server.supervisor.begin_call("c", None)  # of a tool that is not bound
        assert opened() == ("1", "2")
        server.supervisor.end_call("c")
        server.supervisor.end_call("b")
        server.supervisor.end_call("b")
        assert opened() == ("EACCES", "EACCES")  # between calls


def test_a_file_outside_of_the_profile_is_closed_though_a_call_named_it(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "inside").mkdir()
    outside = folder / "outside"
    outside.write_text("no")
    with supervised(limits(folder / "inside")) as server:
        server.supervisor.begin_call("a", frozenset({str(outside), "/etc/shadow", "/"}))
        assert server.run(READ, path=str(outside)) == "EACCES"
        assert server.run(READ, path="/etc/shadow") == "EACCES"
        assert server.run("print(os.listdir('/'))") == "EACCES"


def test_without_its_supervisor_a_server_opens_nothing(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "a").write_text("1")
    with supervised(limits(folder)) as server:
        server.supervisor.begin_call("a", None)
        assert server.run(READ, path=str(folder / "a")) == "1"
        server.supervisor.stop()
        assert server.run(READ, path=str(folder / "a")) == "ENOSYS"
        assert server.run("os.unlink(path)", path=str(folder / "a")) == "ENOSYS"
    assert (folder / "a").exists()


def test_a_supervisor_that_fails_ends_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("as if something unexpected had happened")

    folder = tmp_path.resolve()
    (folder / "a").write_text("1")
    with supervised(limits(folder)) as server:
        server.supervisor.begin_call("a", None)
        assert server.run(READ, path=str(folder / "a")) == "1"
        monkeypatch.setattr(notify_supervisor.Files, "carry_out", broken)
        assert server.run(READ, path=str(folder / "a")) == "ENOSYS"
    assert server.supervisor.failed == "as if something unexpected had happened"


def test_a_program_is_not_started_where_nobody_supervises_it(tmp_path: Path) -> None:
    class Deaf(Supervisor):
        def start(self) -> None:
            self._channel.close()

        def stop(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.sandbox.supervised.Supervisor", Deaf)
        with supervised(limits(tmp_path), stderr=-3) as server:
            assert server.process.wait(PATIENCE) == 126


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to drop")
def test_a_server_without_capabilities_gets_nothing_by_ours(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "closed").write_text("1")
    (folder / "closed").chmod(0)
    with supervised(limits(folder), preexec_fn=drop_capabilities) as server:
        server.supervisor.begin_call("a", None)
        assert server.run(READ, path=str(folder / "closed")) == "EACCES"
    assert (folder / "closed").read_text() == "1"  # ours are what they were
