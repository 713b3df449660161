"""Runs the tests in processes that are forked once all tests are collected: `-p tests.support.fork_workers --forks 4`.

pytest-xdist starts each of its processes from nothing, and each imports every test and collects it: a quarter of a
minute of processor time for each of them. Here that is done once, and so is what the tests share: the zygotes, and the
detectors that are compiled already. A process takes one file after the other, so the tests of a file run in one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import itertools
import mmap
import os
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.support import processes
from tests.support.harness import environment

PR_SET_PDEATHSIG = 1
FILE = struct.Struct("=H")
NOT_RUN = "it did not come to its end, because its process did ({}): the first of these in a file was running then"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="NUMBER", help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    # A debugger needs the terminal, and who asks for pytest-xdist shall have it.
    if option.forks and not (option.collectonly or option.usepdb or config.getoption("numprocesses", None)):
        config.pluginmanager.register(Forks(option.forks), "forks")


class Forks:
    """The process that forks the others, and tells what became of the tests."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._pids: dict[Connection, int] = {}
        self._stop = mmap.mmap(-1, 1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        processes.start_zygotes(environment())  # they do their imports while this collects

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # pytest says so itself: tests could not be collected
        processes.wait_for_zygotes()  # here, where no test's time runs out
        gc.collect()
        gc.freeze()  # what is never collected is never copied either
        missing = dict(enumerate(session.items))
        try:
            self._fork(session)
            for index, reports in self._heard(session):
                _tell(session, missing.pop(index), reports)
        except KeyboardInterrupt:
            self._stop[0] = 1
            raise
        finally:
            ends = self._wait()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        for item in missing.values():
            _tell(session, item, [_not_run(session, item, ends)])
        return True

    def _fork(self, session: pytest.Session) -> None:
        files = [list(group) for _, group in itertools.groupby(range(len(session.items)), _file_of(session))]
        # Whoever is free reads the number of the next file: in the order of the files, and each by one process.
        waiting, fill = os.pipe()
        os.write(fill, b"".join(FILE.pack(number) for number in range(len(files))))
        os.close(fill)
        folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for number in range(self._number):
            here, there = Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                _work(Worker(session, there, files, waiting, self._stop), folder / f"process-{number}")
            there.close()
            self._pids[here] = pid
        os.close(waiting)

    def _heard(self, session: pytest.Session) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of each test that was run, and its reports."""
        working = set(self._pids)
        while working:
            for connection in wait(list(working)):
                assert isinstance(connection, Connection)
                try:
                    yield connection.recv()
                except EOFError:
                    working.remove(connection)
            if session.shouldfail or session.shouldstop:
                self._stop[0] = 1

    def _wait(self) -> list[int]:
        """Wait for all processes; return how they ended."""
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self._pids.values()]


class Worker:
    """A forked process: runs file after file, as long as there are any."""

    def __init__(
        self, session: pytest.Session, there: Connection, files: list[list[int]], waiting: int, stop: mmap.mmap
    ) -> None:
        self.session = session
        self._there = there
        self._files = files
        self._waiting = waiting
        self._stop = stop
        self._reports: list[Any] = []
        self.old_capture: Any = None

    def run(self) -> None:
        hook, items = self.session.config.hook, self.session.items
        queue = self._queue()
        index = next(queue, None)
        while index is not None:
            # Known before this one ends: what both need, such as a database of the session, outlives it.
            following = next(queue, None)
            hook.pytest_runtest_protocol(item=items[index], nextitem=None if following is None else items[following])
            self._there.send((index, self._reports))
            self._reports = []
            over = self._stop[0] or self.session.shouldfail or self.session.shouldstop
            index = None if over else following

    def _queue(self) -> Iterator[int]:
        while taken := os.read(self._waiting, FILE.size):
            yield from self._files[FILE.unpack(taken)[0]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self._reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))


def _file_of(session: pytest.Session) -> Any:
    return lambda index: session.items[index].path


def _tell(session: pytest.Session, item: pytest.Item, reports: list[Any]) -> None:
    config, hook = session.config, item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in reports:
        hook.pytest_runtest_logreport(report=config.hook.pytest_report_from_serializable(config=config, data=data))
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _not_run(session: pytest.Session, item: pytest.Item, ends: list[int]) -> Any:
    report = pytest.TestReport(
        item.nodeid, item.location, {}, "failed", NOT_RUN.format(f"exit codes {ends}"), "call", duration=0.0
    )
    return session.config.hook.pytest_report_to_serializable(config=session.config, report=report)


def _work(worker: Worker, folder: Any) -> NoReturn:
    """Be a worker, and end: what runs at the exit of the process that forked is left to that one."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        atexit._clear()
        _part_from_parent(worker, folder)
        try:
            worker.run()
        finally:
            worker.session._setupstate.teardown_exact(None)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:  # noqa: BLE001  pytest's own failure: it is told, and the tests that are left are too
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _part_from_parent(worker: Worker, folder: Any) -> None:
    """Have a folder and a capture of one's own, and leave the terminal to the parent."""
    config = worker.session.config
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    plugins = config.pluginmanager
    if (capture := plugins.get_plugin("capturemanager")) is not None:
        # Ended, and not closed: what was imported while tests were collected may keep that stderr, as MCP's SDK does.
        worker.old_capture = capture._global_capturing
        worker.old_capture.suspend_capturing()
        capture._global_capturing = None
        capture.start_global_capturing()
        capture.suspend_global_capture()
    for name in ("forks", "logxml", "terminalreporter"):
        plugin = plugins.unregister(name=name) if plugins.has_plugin(name) else None
        if name == "terminalreporter" and plugin is not None:
            # Tests that hang are told of on the terminal.
            plugins.register(SimpleNamespace(_tw=plugin._tw), name)  # type: ignore[attr-defined]
    plugins.register(worker, "worker")
