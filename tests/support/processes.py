"""Starts modules in processes of their own: by a zygote where that is the same, else as a shell would."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

from tests.support.timeouts import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]
CLIENT = REPOSITORY / "tests" / "support" / "fork_client.py"
START_LIMIT = 60.0
IMPORT_LIMIT = 600.0
END_LIMIT = 60.0
PLAIN = "PLAIN_PROCESSES"
"""A variable that, when set, has tests start every process from nothing."""
COMPILED = Path(tempfile.gettempdir()) / f"interlock-tests-{os.getuid()}-{os.getpid()}"
"""The cache of a state folder: what is compiled at the first start on one. The zygote writes it."""
atexit.register(shutil.rmtree, COMPILED, ignore_errors=True)
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_", "TYPER_", "FORCE_COLOR", "TERMINAL_WIDTH")
"""Variables that the interpreter and its imports read once; a child must have those of its zygote."""


class ForkedProcess:
    """A process that a zygote forked: what tests use of subprocess.Popen."""

    def __init__(self, connection: socket.socket, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
        self._connection = connection
        self.stdin, self.stdout = stdin, stdout
        self.returncode: int | None = None
        said, (self._pidfd,) = self._hear_start()
        self.pid = int(said["pid"])

    def _hear_start(self) -> tuple[dict[str, Any], list[int]]:
        assert self._ready(START_LIMIT), f"the zygote did not answer in {START_LIMIT} s"
        try:
            raw, descriptors, _, _ = socket.recv_fds(self._connection, 4096, 1)
            return json.loads(raw), descriptors
        except (ConnectionResetError, json.JSONDecodeError) as error:
            raise AssertionError(f"the zygote ended when it was asked for a process; {PLAIN}=1 does without") from error

    def _ready(self, limit: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        return bool(waiting.poll(None if limit is None else max(0.0, limit) * 1000))

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; a signal's number is negative."""
        if self.returncode is None and self._ready(0):
            try:
                self.returncode = int(json.loads(self._connection.recv(4096))["code"])
            except (ConnectionResetError, json.JSONDecodeError):
                self.returncode = -signal.SIGKILL  # no child outlives its zygote
            self._connection.close()
            os.close(self._pidfd)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it is there.

        Raises subprocess.TimeoutExpired where it is not in time.
        """
        if self.returncode is None and not self._ready(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stdin):
            if stream:
                stream.close()
        self.wait()


type Process = subprocess.Popen[bytes] | ForkedProcess


class Zygote:
    """A running zygote of one kind; see tests/support/fork_server.py."""

    def __init__(self, kind: str, env: dict[str, str]) -> None:
        self.env = env
        self._folder = Path(tempfile.mkdtemp(prefix="zygote-"))
        self.address, self._stderr = str(self._folder / "socket"), self._folder / "stderr"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, self._stderr.open("wb") as errors:
            listener.bind(self.address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from tests.support import fork_server; fork_server.main()",
                    kind,
                    str(listener.fileno()),
                    str(COMPILED),
                ],
                cwd=REPOSITORY,
                env={name: value for name, value in env.items() if name != "PYTHONPATH"},
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        atexit.register(self._end)

    def wait_until_ready(self, limit: float) -> None:
        """Wait until it has done its imports, and would fork at once."""
        assert self._process.stdout
        select.select([self._process.stdout], [], [], limit)  # where it ended, whoever asks it for a process is told

    def fork(self, request: dict[str, Any], streams: list[int]) -> socket.socket:
        """Ask for a process; return the connection that tells of it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(self.address)
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
        except OSError as error:
            connection.close()
            raise AssertionError(f"no zygote ({error}); {PLAIN}=1 does without:\n{self.errors()}") from error
        return connection

    def errors(self) -> str:
        return self._stderr.read_text(errors="replace")

    def _end(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_LIMIT)
        shutil.rmtree(self._folder, ignore_errors=True)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name != "PYTHONPATH"}


_zygotes: dict[str, Zygote] = {}


def start_zygotes(env: dict[str, str]) -> None:
    """Start the zygotes of this process and of those that it forks, for processes with this environment."""
    if not os.environ.get(PLAIN):
        for kind in ("interlock", "servers"):
            _zygotes[kind] = Zygote(kind, env)


def wait_for_zygotes() -> None:
    """Wait until those that were started have done their imports."""
    for zygote in _zygotes.values():
        zygote.wait_until_ready(IMPORT_LIMIT)


def seed_cache(state_dir: Path, env: dict[str, str]) -> None:
    """Let a process on this folder find what another has compiled, as a second start does."""
    if (zygote := _zygote_for("proxy.cli", env)) is not None:
        zygote.wait_until_ready(START_LIMIT)
        if COMPILED.exists():  # else it could not be started, and says so to whoever asks it for a process
            shutil.copytree(COMPILED, state_dir / "cache", dirs_exist_ok=True)


def _zygote_for(module: str, env: dict[str, str]) -> Zygote | None:
    """Return the zygote whose child would be as `python -m MODULE` is; None where there is none."""
    kind = "servers" if module.startswith("tests.servers.") else "interlock"
    if os.environ.get(PLAIN):
        return None
    if kind not in _zygotes:
        _zygotes[kind] = Zygote(kind, env)
    zygote = _zygotes[kind]
    return zygote if _read_at_start(zygote.env) == _read_at_start(env) else None


def start_module(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    new_session: bool = False,
) -> Process:
    """Run `python -m MODULE ARGUMENT…`; streams are as for subprocess.Popen, without a pipe for stderr."""
    environment = dict(os.environ if env is None else env)
    zygote = _zygote_for(module, environment)
    if zygote is None:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=new_session,
        )  # fmt: skip
    request = {"module": module, "arguments": arguments, "env": environment, "cwd": str(cwd)}
    request["new_session"] = new_session
    with contextlib.ExitStack() as closing:
        theirs, ours = zip(*(_stream(each, n, closing) for n, each in enumerate((stdin, stdout, stderr))), strict=True)
        connection = zygote.fork(request, list(theirs))
    try:
        return ForkedProcess(connection, ours[0], ours[1])
    except BaseException as error:
        connection.close()
        error.add_note(zygote.errors())
        raise


def module_command(module: str, *arguments: str, env: Mapping[str, str]) -> list[str]:
    """Return a command that runs a module, for those who can only start commands; it must be started with `env`."""
    zygote = _zygote_for(module, dict(env))
    if zygote is None:
        return [sys.executable, "-m", module, *arguments]
    return [sys.executable, "-I", "-S", str(CLIENT), zygote.address, module, *arguments]


def _stream(stream: int | IO[bytes], number: int, closing: contextlib.ExitStack) -> tuple[int, IO[bytes] | None]:
    """Return the descriptor for the child's stream, and our end where it is a pipe."""
    if stream == subprocess.PIPE:
        reading, writing = os.pipe()
        theirs, ours = (reading, writing) if number == 0 else (writing, reading)
        closing.callback(os.close, theirs)
        return theirs, os.fdopen(ours, "wb" if number == 0 else "rb")
    if stream == subprocess.DEVNULL:
        theirs = os.open(os.devnull, os.O_RDWR)
        closing.callback(os.close, theirs)
        return theirs, None
    return stream if isinstance(stream, int) else stream.fileno(), None


def run_module(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGUMENT…` to its end; return what it wrote, and its exit code.

    Raises subprocess.TimeoutExpired, having killed it, where it takes longer.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with start_module(module, *arguments, env=env, cwd=cwd, stdout=out, stderr=err) as process:
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
        return subprocess.CompletedProcess([module, *arguments], code, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return io.TextIOWrapper(io.BytesIO(file.read())).read()
