"""Real processes for tests: Interlock itself, MCP servers, certificates, and raw sockets to try them with.

Everything that waits has a bound; everything that was started is ended by the one who started it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from tests.support import processes
from tests.support.processes import REPOSITORY, Process, run_module, start_module
from tests.support.raw_socket import Segment, Tls, send_raw
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail

__all__ = [
    "DENY_ALL_DANGER",
    "REPOSITORY",
    "Certificates",
    "Interlock",
    "Segment",
    "ServerHandle",
    "Tls",
    "free_port",
    "interlock_cli",
    "make_certificates",
    "send_raw",
    "start_interlock",
    "start_process_server",
    "start_python_server",
]

WORKERS = "TEST_WORKERS"
"""A variable that says how many workers a proxy has: one is the cheapest, and what several change has its own tests."""
SETTLE = 0.2
GLANCE = 0.01

DENY_ALL_DANGER = """\
version: 1
default: allow
rules:
  - id: no-danger
    description: The tests' forbidden tool
    action: deny
    tools: [danger]
  - id: no-system-files
    description: The tests' forbidden paths
    action: deny
    tools: [read_file]
    when:
      all:
        - {arg: path, path_under: [/etc]}
"""
"""The policy most tests want: `danger` is denied, `read_file` under /etc is denied, the rest is allowed."""


@dataclass(frozen=True)
class Certificates:
    """A certificate authority for servers on loopback, and one leaf certificate for them."""

    ca_file: Path
    cert_file: Path
    key_file: Path


def make_certificates(directory: Path, *names: str) -> Certificates:
    """Make a CA and a leaf for 127.0.0.1, localhost and `names` in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1", "localhost", *names)
    made = Certificates(directory / "ca.pem", directory / "leaf.pem", directory / "leaf.key")
    authority.cert_pem.write_to_path(made.ca_file)
    made.cert_file.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(made.key_file)
    return made


def free_port() -> int:
    """Return a loopback port that nobody listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _read_line(process: Process, limit: float) -> bytes:
    """Read one line from the process's stdout, or nothing where it ends or the time is up."""
    assert process.stdout
    stdout = process.stdout.fileno()
    line = b""
    deadline = time.monotonic() + limit
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(stdout, 1) if ready else b""
        if not chunk:
            return b""
        line += chunk
    return line


def _end(process: Process) -> int:
    """Ask the process to end, insist after PATIENCE, and give its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE)
        raise


@dataclass
class ServerHandle:
    """A running test server and the log of what it executed."""

    name: str
    process: Process
    port: int
    log: Path
    stderr: Path
    tls: bool
    requests_log: Path | None = None
    plain_port: int | None = None
    """Where a server with TLS listens without it as well; the TypeScript ones do."""
    _seen: int = field(default=0)

    @property
    def url(self) -> str:
        """The server's root URL, without a trailing slash."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def plain_url(self) -> str:
        """The same without TLS."""
        return f"http://127.0.0.1:{self.plain_port or self.port}"

    def executions(self) -> list[dict[str, Any]]:
        """Return every tool execution so far, in order: `tool` and `arguments`."""
        return _json_lines(self.log)

    def new_executions(self) -> list[dict[str, Any]]:
        """Return the executions since this was last asked."""
        every = self.executions()
        fresh, self._seen = every[self._seen :], len(every)
        return fresh

    def wake(self) -> None:
        """Let the tools that sleep answer now."""
        self.log.with_suffix(".wake").touch()

    def requests(self) -> list[dict[str, Any]]:
        """Return every HTTP request that arrived, for servers started with a request log."""
        assert self.requests_log, f"{self.name} keeps no request log"
        return _json_lines(self.requests_log)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@contextlib.contextmanager
def start_process_server(
    name: str,
    start: Sequence[str] | Callable[..., Process],
    directory: Path,
    *,
    certificates: Certificates | None = None,
    flags: Sequence[str] = (),
    requests: bool = False,
) -> Iterator[ServerHandle]:
    """Run a command, or what `start` starts, with the test servers' flags until the block ends.

    It must print `{"port": N}` once it listens (see tests/servers).
    """
    directory.mkdir(parents=True, exist_ok=True)
    log, stderr = directory / f"{name}.log", directory / f"{name}.stderr"
    words = ["--port", "0", "--log", str(log), *flags]
    if certificates:
        words += ["--tls-cert", str(certificates.cert_file), "--tls-key", str(certificates.key_file)]
    requests_log = directory / f"{name}.requests" if requests else None
    if requests_log:
        words += ["--requests", str(requests_log)]
    with stderr.open("wb") as errors:
        if callable(start):
            process = start(*words, stdout=subprocess.PIPE, stderr=errors)
        else:
            process = subprocess.Popen([*start, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors)
    with process:
        try:
            line = _read_line(process, PATIENCE)
            assert line, f"{name} did not start:\n{stderr.read_text()}"
            said = json.loads(line)
            tls, plain_port = bool(certificates), said.get("plain_port")
            yield ServerHandle(name, process, int(said["port"]), log, stderr, tls, requests_log, plain_port)
        finally:
            _end(process)


@contextlib.contextmanager
def start_python_server(
    module: str,
    directory: Path,
    *,
    certificates: Certificates | None = None,
    flags: Sequence[str] = (),
    requests: bool = False,
) -> Iterator[ServerHandle]:
    """Run `tests.servers.MODULE` until the block ends."""
    start = functools.partial(start_module, f"tests.servers.{module}", env=environment())
    with start_process_server(
        module, start, directory, certificates=certificates, flags=flags, requests=requests
    ) as server:
        yield server


@dataclass
class Interlock:
    """A running Interlock."""

    process: Process
    state_dir: Path
    stderr: Path
    run: dict[str, Any]
    stopped: bool = False
    database_url: str | None = None
    """The Postgres that it was started with."""
    argv: Sequence[str] = ()
    """What it was started with."""
    env: dict[str, str] | None = None

    @property
    def port(self) -> int:
        return int(str(self.run["listen"]).rpartition(":")[2])

    @property
    def url(self) -> str:
        """The root URL for clients in reverse mode."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def proxy_url(self) -> str:
        """What to put in HTTPS_PROXY in regular mode."""
        return self.url

    @property
    def ca_file(self) -> Path:
        return Path(self.run["ca"])

    @property
    def worker_pids(self) -> list[int]:
        """The processes that serve now, by the number of their place."""
        run = json.loads((self.state_dir / "run.json").read_bytes())
        return [worker["pid"] for worker in run["workers"]]

    @property
    def health_url(self) -> str:
        return f"http://{self.run['health']}"

    @property
    def console_url(self) -> str:
        return str(self.run["console"])

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another interlock command on the same state directory."""
        return interlock_cli(*arguments, "--state-dir", str(self.state_dir))

    def recorded(self) -> list[dict[str, Any]]:
        """Return the audit events that are there by now, oldest first."""
        return read_trail(self.state_dir, self.database_url)

    def events(self, *, some: bool = True) -> list[dict[str, Any]]:
        """Return the audit events, oldest first, once no more are on their way; `some` waits for the first of them.

        None are on their way where nothing came for a while, and not for want of a processor or of the disk.
        """
        seen = self.recorded()
        deadline = time.monotonic() + PATIENCE
        while not self.stopped and time.monotonic() < deadline:
            time.sleep(SETTLE)
            self._rest(deadline)
            now = self.recorded()
            if now == seen and (now or not some):
                break
            seen = now
        return seen

    def _rest(self, deadline: float) -> None:
        """Wait until a look at the workers finds each of them waiting for others."""
        while any(map(_is_at_work, self.worker_pids)) and time.monotonic() < deadline:
            time.sleep(GLANCE)

    def errors(self) -> str:
        """Return what the daemon wrote to stderr."""
        return self.stderr.read_text(errors="replace")

    def stop(self) -> None:
        """Stop the daemon and see that it went cleanly.

        Raises AssertionError where it was gone already, does not go within
        PATIENCE seconds, or goes with an exit code other than 0.
        """
        self.stopped = True
        assert self.process.poll() is None, f"interlock had ended by itself:\n{self.errors()}"
        code = _end(self.process)
        assert code == 0, f"interlock exited with {code}:\n{self.errors()}"


def _is_at_work(pid: int) -> bool:
    """Whether a thread of the process runs, waits for a processor to run on, or waits for the disk."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # then it has ended, or one of them has
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD":
                return True
    return False


def interlock_cli(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    """Run one interlock command to its end."""
    return run_module("proxy.cli", *arguments, env=environment(env), cwd=cwd)


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment for an interlock process: none of the caller's own settings or proxies.

    Two of them are passed on: `make test-plain` runs every test without the replacements for speed, and
    `make test-layers` some without the fast lane alone.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("INTERLOCK_FAST", "INTERLOCK_FAST_LANE")
        or not (name.startswith("INTERLOCK_") or name.lower().endswith("_proxy"))
    }
    return kept | {"PYTHONWARNINGS": "default", "NO_COLOR": "1"} | (extra or {})


def seed_cache(state_dir: Path) -> None:
    """Let interlock on this folder find the detectors compiled, as a second start does."""
    processes.seed_cache(state_dir, environment())


def _wait_for_run_file(process: Process, path: Path, stderr: Path) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            run: dict[str, Any] = json.loads(path.read_bytes())
            if run["pid"] == process.pid:  # else it was left by one that was killed
                return run
        time.sleep(0.02)
    state = "ended" if process.poll() is not None else "did not get ready"
    raise AssertionError(f"interlock {state} (exit code {process.poll()}):\n{stderr.read_text()}")


@contextlib.contextmanager
def start_interlock(
    tmp_path: Path,
    mode: str = "regular",
    policy: str = DENY_ALL_DANGER,
    *,
    settings: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    upstream_ca: Path | None = None,
    flags: Sequence[str] = (),
    program: Sequence[str] = ("proxy.cli",),
) -> Iterator[Interlock]:
    """Run `interlock up` until the block ends; a clean exit is part of the contract.

    `settings` become a configuration file; `env` is added to the environment;
    `program` is the module to run in place of the ordinary command line. The
    daemon's stderr is shown when it does not start, does not stop cleanly, or when
    the block fails.
    """
    state_dir = tmp_path / "state"
    policy_file, stderr = tmp_path / "policy.yaml", tmp_path / "interlock.stderr"
    tmp_path.mkdir(parents=True, exist_ok=True)
    policy_file.write_text(policy)
    seed_cache(state_dir)
    argv = [*program, "up", "--listen", "127.0.0.1:0", "--mode", mode]
    argv += ["--policy", str(policy_file), "--state-dir", str(state_dir), *flags]
    if "--workers" not in flags and "workers" not in (settings or {}):
        argv += ["--workers", os.environ.get(WORKERS, "1")]
    if "--health-listen" not in flags:
        argv += ["--health-listen", "127.0.0.1:0"]
    if "--console-listen" not in flags:
        argv += ["--console-listen", "127.0.0.1:0"]
    if upstream_ca:
        argv += ["--upstream-ca", str(upstream_ca)]
    if settings is not None:
        config = tmp_path / "interlock.yaml"
        config.write_text(json.dumps(settings))
        argv += ["--config", str(config)]
    with stderr.open("wb") as errors:
        process = start_module(*argv, env=environment(env), stdout=errors, stderr=errors)
    with process:
        interlock: Interlock | None = None
        try:
            run = _wait_for_run_file(process, state_dir / "run.json", stderr)
            interlock = Interlock(
                process, state_dir, stderr, run, database_url=_database_url(flags), argv=argv, env=env
            )
            yield interlock
        except BaseException:
            sys.stderr.write(f"--- interlock's stderr\n{stderr.read_text(errors='replace')[-20000:]}\n---\n")
            _end(process)
            raise
        if not interlock.stopped:
            interlock.stop()


def _database_url(flags: Sequence[str]) -> str | None:
    return flags[flags.index("--database-url") + 1] if "--database-url" in flags else None
