"""Runs a server in a sinkhole: namespaces from which nothing gets out.

`plan_sinkhole` returns, outside, what to start; that runs `main`, which isolates itself, serves the sinks and starts
the server under its tracer. Its exit code is the server's, or `IMPOSSIBLE` where the system refuses to isolate.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.agent.env import EXTRA, ROOTS
from proxy.probe.canary_files import SECRETS
from proxy.sandbox import namespaces
from proxy.sandbox.namespaces import NamespaceError, OverMount, drop_capabilities, listening_sockets
from proxy.sandbox.process_reaper import reap_until
from proxy.sandbox.server_process import Launch

if TYPE_CHECKING:
    from collections.abc import Mapping

# Exit code where there can be no sinkhole; the reason is in the file `problem`.
IMPOSSIBLE = 97
# Of each process that is probed: a tool that fills the memory or the disk must not take the machine down.
LIMITS = {
    resource.RLIMIT_DATA: 4 << 30,
    resource.RLIMIT_FSIZE: 1 << 30,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 4096,
}
STDERR_BYTES = 2000
LINGER_SECONDS = 1.0
# Reached only where a process that outlived the server keeps a connection open, or on a machine with much else to do.
LAST_NOTES_SECONDS = 3.0
DOCKER_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from proxy.probe.sinkhole import main; main(sys.argv[2])"


@dataclass(frozen=True, slots=True)
class Sinkhole:
    folder: str  # shared with the outside: `notes`, `stderr`, `problem`, `trust.pem`
    home: str
    command: tuple[str, ...]  # starts the tracer, which starts the server
    environment: dict[str, str]
    working_folder: str
    real_home: str
    state_folder: str | None = None
    sources: tuple[str, ...] = ()  # folders and files with the values of credentials
    copies: tuple[str, ...] = ()  # folders of which the server sees copies, and may write to them
    drops: bool = False  # the command drops the capabilities that the tracer keeps: no server can trace its tracer
    home_path: str | None = None  # where the server sees its home, if it is not where it is
    planted: tuple[str, ...] = ()  # files in temporary folders that it finds there, with nothing much in them

    def file(self, name: str) -> Path:
        return Path(self.folder, name)

    def stderr_end(self) -> str:
        """Return the end of what the server wrote to stderr, as a message ends with it."""
        try:
            text = self.file("stderr").read_bytes()[-STDERR_BYTES:].decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return f"; its stderr ends with:\n{text}" if text else ""


def environment(home: Path, folder: Path, variables: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the server's variables: a home of canaries, our CA trusted, and nothing of the caller's but `said`."""
    trust = str(folder / "trust.pem")
    return {
        "PATH": path,
        "HOME": str(home),
        **dict.fromkeys(("USER", "LOGNAME"), home.name),
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SSH_AUTH_SOCK": str(home / ".ssh" / "agent.sock"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_UPDATE_NOTIFIER": "1",
        **dict.fromkeys((*ROOTS, *EXTRA), trust),
        **variables,
    }


def plan_sinkhole(sinkhole: Sinkhole) -> Launch:
    """Return what to start for a sinkhole, after creating what it needs in its folder."""
    os.mkfifo(sinkhole.file("notes"), 0o600)
    plan = sinkhole.file("plan.json")
    plan.write_text(json.dumps(asdict(sinkhole)))
    root = str(Path(__file__).resolve().parents[2])
    return Launch(sys.executable, (sys.executable, "-I", "-c", BOOT, root, str(plan)))


def main(plan: str) -> None:
    words = json.loads(Path(plan).read_text())
    tuples = {name: tuple(words[name]) for name in ("command", "copies", "sources", "planted")}
    sinkhole = Sinkhole(**{**words, **tuples})
    # Opened now: once half of the mounts are made, the path may lead elsewhere.
    with sinkhole.file("problem").open("w", buffering=1) as problem:
        try:
            code = _run(sinkhole)
        except (NamespaceError, OSError) as error:
            problem.write(str(error))
            code = IMPOSSIBLE
    os._exit(code)


def _run(sinkhole: Sinkhole) -> int:
    # Imported here: outside, where the plan is made, none of this is needed.
    from proxy.probe.sink_servers import COMMON, REDIRECTED, ProbeAuthority, SinkLog, SinkServers  # noqa: PLC0415

    folder, home, seen = Path(sinkhole.folder), Path(sinkhole.home), Path(sinkhole.home_path or sinkhole.home)
    notes = SinkLog(os.open(sinkhole.file("notes"), os.O_WRONLY))
    sinkhole.file("notes").unlink()  # both ends are open: a server that opened it could forge entries
    stderr = os.open(sinkhole.file("stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    authority = ProbeAuthority()
    system = next((Path(path).read_bytes() for path in BUNDLES if Path(path).is_file()), b"")
    (folder / "trust.pem").write_bytes(system + b"\n" + authority.pem)
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (scratch := folder / "scratch").mkdir()
    hidden = hidden_places(sinkhole)  # before isolating: inside, the machine's sockets are not listed any more
    namespaces.isolate()
    # Homes become a copy, so that this one can be among them.
    homes = (str(seen.parent),) if seen != home else ()
    namespaces.confine_files(home, folder, hidden, scratch, (*homes, *sinkhole.copies), seen_at=seen)
    redirected = namespaces.confine_network()
    sockets = [Path(path) for path in DOCKER_SOCKETS] + [Path(sinkhole.environment["SSH_AUTH_SOCK"])]
    sinks = SinkServers(notes, authority, sockets, (REDIRECTED,) if redirected else COMMON)
    # Bound before the fork and served after it: no connection of the server comes too early, and no thread of
    # ours exists when we fork.
    child = os.fork()
    if child == 0:
        _become(sinkhole, stderr)
    for stream in (0, 1):  # while we hold them too, the probe would not see the server close them
        os.close(stream)
    sinks.serve()
    notes.note("ready")
    code = _wait(child)
    sinks.finish(LAST_NOTES_SECONDS)
    return code


def hidden_places(sinkhole: Sinkhole) -> tuple[OverMount, ...]:
    """Return what is covered: the caller's real secrets (by canaries), our own state, and sockets that lead out."""
    home, real = Path(sinkhole.home_path or sinkhole.home), Path(sinkhole.real_home)
    tops = dict.fromkeys("/".join(path.split("/")[: _depth(path)]) for path in SECRETS)
    covers = [OverMount(str(real / top), str(home / top)) for top in tops if (real / top).exists()]
    covers += [OverMount(sinkhole.state_folder)] if sinkhole.state_folder else []
    covers += [OverMount(path, None if Path(path).is_dir() else "/dev/null") for path in sinkhole.sources]
    covers += [OverMount(path, "/dev/null") for path in listening_sockets() if not path.startswith("/run/")]
    return (*covers, OverMount("/etc/resolv.conf", str(Path(sinkhole.folder) / "resolv.conf"), create=True))


def _depth(path: str) -> int:
    """Return how many folders of a secret's path are covered: below .config and the like, not those as a whole."""
    return 3 if path.startswith(".local/share/") else 2 if path.startswith((".config/", ".cache/")) else 1


def _become(sinkhole: Sinkhole, stderr: int) -> None:
    try:
        os.dup2(stderr, 2)
        os.closerange(3, 1 << 10)
        _plant(sinkhole.planted)
        os.chdir(sinkhole.working_folder)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        for kind, most in LIMITS.items():
            bound(kind, most)
        drop_capabilities((namespaces.CAP_SETPCAP, namespaces.CAP_SYS_PTRACE) if sinkhole.drops else ())
        os.execve(sinkhole.command[0], sinkhole.command, sinkhole.environment)  # noqa: S606  the words are the caller's
    except OSError as error:
        os.write(2, f"cannot start {sinkhole.command[0]!r}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _plant(paths: tuple[str, ...]) -> None:
    """Make files in the copies of the temporary folders; what cannot be made there is left out."""
    for path in map(Path, paths):
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("1\n")


def bound(kind: int, most: int) -> None:
    """Limit what this process, and each that it starts, may use; a lower limit that holds already stays."""
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def _wait(child: int) -> int:
    """Wait for the server, and then a moment for its tracer, which may still have lines to write."""
    code = reap_until(child)
    deadline = time.monotonic() + LINGER_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
    return code
