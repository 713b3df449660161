"""Who is compared: how each proxy is started before a server, and where it is found then."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from bench import nginx, policies
from bench.install import HERE, Installed, Package, find_program
from bench.install import PACKAGES as _PACKAGES
from bench.processes import ROOT, Started, StartError, environment, free_port, started, wait_for_port, wait_until
from bench.servers import Servers

REASON = 300
"""The longest reason that is kept whole."""
# One worker, since what it is compared with is one process; and no fixed port, since several are up at once.
USUAL = {"--workers": "1", "--health-listen": "off"}
PACKAGES: dict[str, Package] = {package.name: package for package in _PACKAGES}


@dataclass(frozen=True)
class World:
    """What a run has: its servers, its folder, what is installed, and what could not be started."""

    servers: Servers
    folder: Path
    installed: Installed
    left_out: dict[str, str] = field(default_factory=dict)
    """Why something was not measured, by its name."""
    kept: dict[tuple[str, str], Running] = field(default_factory=dict)
    """Contenders that stay up from one workload to the next, by name and kind of traffic."""
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Ends them."""

    def leave_out(self, name: str, reason: str) -> None:
        """Note that something is not measured, in one line; the first reason counts."""
        line = " ".join(reason.split())
        self.left_out.setdefault(
            name, line if len(line) <= REASON else f"{line[: REASON // 2]} … {line[-REASON // 2 :]}"
        )

    def end_kept(self) -> None:
        """End the contenders that stayed up."""
        self.stack.close()
        self.kept.clear()


@dataclass(frozen=True)
class Running:
    """A contender that takes calls."""

    port: int
    pid: int | None
    tunnel: bool = False
    """Whether it is asked to CONNECT, rather than taken for the server."""
    state_dir: Path | None = None


Start = Callable[[World, str], AbstractContextManager[Running]]
"""Starts a contender for traffic of a kind: `plain` (a reverse proxy) or `tls` (a tunnel to any server)."""


@contextlib.contextmanager
def direct(_: World, __: str) -> Iterator[Running]:
    """No proxy at all: the port is the server's."""
    yield Running(0, None)


@contextlib.contextmanager
def nginx_proxy(world: World, kind: str) -> Iterator[Running]:
    """nginx as a reverse proxy: what copying bytes costs in C."""
    program = find_program("nginx")
    if reason := world.installed.reason("nginx"):
        raise StartError(reason)
    if kind != "plain" or not program:
        raise StartError("nginx is no forward proxy for TLS")
    port, folder = free_port(), world.folder / "nginx-proxy"
    config = nginx.proxy_config(folder, port, world.servers.plain)
    with started("nginx", nginx.command(program, config), folder) as server:
        wait_for_port(server, port)
        yield Running(port, server.pid)


def mitmdump_program() -> Path:
    """Return mitmdump from its own venv, or the copy that came with the product, which is the same version."""
    own = PACKAGES["mitmproxy"].path()
    return own if own.exists() else Path(sys.executable).with_name("mitmdump")


def mitmdump(*flags: str, name: str = "mitmdump") -> Start:
    """Return mitmdump, quiet so that it need not print every flow; all else is as it comes."""

    @contextlib.contextmanager
    def start(world: World, kind: str) -> Iterator[Running]:
        port, folder = free_port(), world.folder / f"{name}-{kind}"
        argv: list[str | Path] = [mitmdump_program(), "-q", "--listen-host", "127.0.0.1", "--listen-port", str(port)]
        argv += ["--set", f"confdir={folder / 'conf'}"]
        argv += ["--set", f"ssl_verify_upstream_trusted_ca={world.servers.certificates.ca}", *flags]
        if kind == "plain":
            argv += ["--mode", f"reverse:http://127.0.0.1:{world.servers.plain}"]
        with started(name, argv, folder, env={"NAIVE_LOG": str(folder / "naive.jsonl")}) as server:
            wait_for_port(server, port)
            yield Running(port, server.pid, tunnel=kind != "plain")

    return start


@dataclass(frozen=True)
class Interlock:
    """How Interlock is set up."""

    name: str = "interlock"
    rules: int = 100
    redact: bool = True
    strict: bool = False
    """Whether the strict profile is in force, and not the benchmark's rules."""
    module: str = "proxy.cli"
    flags: tuple[str, ...] = ()
    before: int | None = None
    """The port of the server that it stands before as a reverse proxy, where it is not the plain one."""
    checkout: Path = ROOT
    """The checkout that is run, with the Python of its own .venv where it is not this one."""

    @property
    def python(self) -> str:
        """The Python that runs it."""
        return sys.executable if self.checkout == ROOT else str(self.checkout / ".venv" / "bin" / "python")

    def command(self, world: World, kind: str, folder: Path) -> list[str]:
        """Return the command line of `interlock up`."""
        if self.strict:
            policy = policies.write_strict(folder / "policies")
        else:
            policy = policies.write(folder / "policy.yaml", self.rules, redact=self.redact)
        server = self.before or world.servers.plain
        mode = f"reverse:http://127.0.0.1:{server}" if kind == "plain" else "regular"
        return [
            *(self.python, "-m", self.module, "up", "--listen", "127.0.0.1:0", "--mode", mode),
            *("--policy", str(policy), "--state-dir", str(folder / "state")),
            *("--upstream-ca", str(world.servers.certificates.ca)),
            *(
                word
                for flag, value in USUAL.items()
                if knows(flag) and flag not in self.flags
                for word in (flag, value)
            ),
            *self.flags,
        ]

    @contextlib.contextmanager
    def __call__(self, world: World, kind: str) -> Iterator[Running]:
        """Run it."""
        folder = world.folder / f"{self.name}-{kind}"
        state = folder / "state"
        with started(self.name, self.command(world, kind, folder), folder, cwd=self.checkout) as server:
            wait_until(server, lambda: run_file(server, state) is not None)
            run = run_file(server, state)
            assert run
            port = int(str(run["listen"]).rpartition(":")[2])
            wait_for_port(server, port)
            yield Running(port, server.pid, tunnel=kind != "plain", state_dir=state)


@contextlib.contextmanager
def interlock_on_postgres(world: World, kind: str) -> Iterator[Running]:
    """Interlock that ships its events to a real Postgres, which syncs to disk."""
    from tests.support.postgres import DURABLE, Postgres  # noqa: PLC0415  the tests' one is found as it is imported

    postgres = Postgres(DURABLE)
    try:
        flags = ("--database-url", postgres.new_database())
        with Interlock("interlock-postgres", flags=flags)(world, kind) as running:
            yield running
    finally:
        postgres.stop()


def run_file(server: Started, state: Path) -> dict[str, object] | None:
    """Return what a daemon says of itself once it listens."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        run: dict[str, object] = json.loads((state / "run.json").read_bytes())
        return run if run["pid"] == server.pid else None
    return None


@functools.cache
def _help() -> bytes:
    argv = [sys.executable, "-m", "proxy.cli", "up", "--help"]
    env = environment({"COLUMNS": "200", "NO_COLOR": "1"})
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, check=False).stdout


def knows(flag: str) -> bool:
    """Return whether this version of `interlock up` has a flag."""
    return flag.encode() in _help()


@dataclass(frozen=True)
class Contender:
    """Somebody who is measured."""

    name: str
    what: str
    start: Start
    stays: bool = False
    """Whether it serves in more than one workload, and is started but once."""


DIRECT = Contender("direct", "no proxy", direct, stays=True)
NGINX = Contender("nginx", "nginx, reverse proxy", nginx_proxy, stays=True)
MITMDUMP = Contender("mitmdump", "stock mitmdump, no addon", mitmdump(), stays=True)
STREAMING = Contender(
    "mitmdump", "stock mitmdump, streaming", mitmdump("--set", "stream_large_bodies=1m", name="mitmdump-stream")
)
NAIVE = Contender(
    "naive",
    "mitmdump with a naive addon",
    mitmdump("-s", str(HERE / "naive_addon.py"), name="mitmdump-naive"),
    stays=True,
)
EMPTY = Contender(
    "empty", "Interlock's embedding, empty gate", Interlock("empty", module="bench.empty_gate"), stays=True
)
INTERLOCK = Contender("interlock", "Interlock, everything on", Interlock(), stays=True)


@contextlib.contextmanager
def all_started(
    world: World, contenders: Sequence[Contender], kind: str, workload: str
) -> Iterator[dict[str, Running]]:
    """Return several contenders, up at the same time; those that cannot be started are noted and left out."""
    with contextlib.ExitStack() as stack:
        running = {}
        for contender in contenders:
            key = contender.name, kind
            try:
                if contender.stays and key not in world.kept:
                    world.kept[key] = world.stack.enter_context(contender.start(world, kind))
                running[contender.name] = (
                    world.kept[key] if contender.stays else stack.enter_context(contender.start(world, kind))
                )
            except StartError as error:
                world.leave_out(f"{workload}: {contender.name}", str(error))
        yield running
