"""What is outside of a confinement in tests: a proxy, servers with names, and listeners that must hear nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.confine.ordinary import NOBODY
from tests.support.harness import (
    DENY_ALL_DANGER,
    Interlock,
    ServerHandle,
    environment,
    make_certificates,
    start_interlock,
    start_python_server,
)
from tests.support.processes import REPOSITORY, run_module
from tests.support.timeouts import PATIENCE
from tests.support.web_site import start_page, start_site

POLICY = f"""{DENY_ALL_DANGER}
egress:
  default: deny
  rules:
    - {{id: known, action: allow, hosts: [mcp.test, site.test, localhost]}}
"""
LIMIT = 100.0


@dataclass
class World:
    """What runs outside, and `folder`, which every user may write to."""

    folder: Path
    interlock: Interlock
    server: ServerHandle
    site: str
    host_port: int
    listeners: dict[str, socket.socket] = field(default_factory=dict)

    def confine(
        self, *command: str, ordinary: bool = False, flags: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command confined; `ordinary`: as nobody in particular, who must be told where the proxy is."""
        interlock = self.interlock
        if ordinary:
            found = ["--listen", f"127.0.0.1:{interlock.port}", "--ca-folder", str(self.folder / "ca")]
            found += ["--state-dir", str(self.folder / "own-state")]
        else:
            found = ["--state-dir", str(interlock.state_dir)]
        words = ["proxy.cli", "confine", *found, *flags, "--", *command]
        environ = environment({"HOME": str(self.folder)})
        if not ordinary:
            return run_module(*words, env=environ, timeout=LIMIT)
        return subprocess.run(
            [sys.executable, "-m", "tests.confine.ordinary", sys.executable, "-m", *words],
            cwd=REPOSITORY,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def add_agent(self, name: str) -> list[str]:
        """Add an agent to the proxy; return the flags that call in its name."""
        token = self.folder / f"{name}.token"
        token.write_text(self.interlock.cli("agents", "add", name).stdout.splitlines()[0].split()[-1])
        return ["--agent", name, "--token-file", str(token)]

    def execute(self, *command: str, flags: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a command by `interlock exec`, for a caller whose own environment goes around the proxy."""
        around = {"NO_PROXY": "*", "no_proxy": "site.test", "HTTPS_PROXY": "http://127.0.0.1:1"}
        state = ["--state-dir", str(self.interlock.state_dir)]
        return run_module("proxy.cli", "exec", *state, *flags, "--", *command, env=environment(around), timeout=LIMIT)

    def outside(self, *, ordinary: bool = False) -> dict[str, Any]:
        """Say what there is to attack."""
        return {
            "loopback": self.listeners["tcp"].getsockname()[1],
            "udp": self.listeners["udp"].getsockname()[1],
            "addresses": addresses(),
            "service": str(self.folder / "service.sock"),
            "kept": str(self.folder / "kept.sock"),
            "abstract": self.listeners["abstract"].getsockname()[1:].decode(),
            "state": str(self.folder / "own-state" if ordinary else self.interlock.state_dir),
            "policy": str(self.interlock.run["policy"]),
            "site": f"{self.site}/hello.txt",
            "host_port": self.host_port,
        }

    def heard(self) -> list[str]:
        """Say which of the listeners heard anything."""
        heard = []
        for name, listener in self.listeners.items():
            with contextlib.suppress(BlockingIOError):
                if listener.type == socket.SOCK_DGRAM:
                    listener.recv(100)
                else:
                    listener.accept()[0].close()
                heard.append(name)
        return heard


def addresses() -> list[str]:
    """Return this machine's own addresses, but those of loopback."""
    told = subprocess.run(["ip", "-json", "addr"], capture_output=True, check=True, timeout=PATIENCE).stdout
    found = [info for link in json.loads(told) for info in link.get("addr_info", ())]
    return [info["local"] for info in found if info.get("scope") == "global"]


def listen() -> dict[str, socket.socket]:
    """Listen on every address, over TCP, UDP and an abstract unix socket."""
    tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    udp.bind(("::", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("")
    abstract.listen()
    made = {"tcp": tcp, "udp": udp, "abstract": abstract}
    for each in made.values():
        each.setblocking(False)
    return made


def listen_on_path(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(0o777)
    made.listen()
    made.setblocking(False)
    return made


def _greet(listener: socket.socket) -> None:
    listener.setblocking(True)
    with listener, contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"hello")


@contextlib.contextmanager
def make_world() -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="confine-", dir="/tmp"))  # where every user may come
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o777)
        certificates = make_certificates(folder / "certificates", "mcp.test", "site.test")
        port = stack.enter_context(start_site(folder / "site", certificates))
        host_port = stack.enter_context(start_page(folder / "page"))
        flags = ["--stateless", "--json", "--host", "0.0.0.0"]
        server = stack.enter_context(
            start_python_server("python_modern", folder / "server", certificates=certificates, flags=flags)
        )
        interlock = stack.enter_context(
            start_interlock(
                folder / "proxy", policy=POLICY, upstream_ca=certificates.ca_file, program=["tests.daemon.named"]
            )
        )
        (folder / "ca").mkdir()
        for name in ("ca.pem", "bundle.pem"):
            shutil.copy(interlock.ca_file.with_name(name), folder / "ca" / name)
        token = folder / "own-state" / "keys" / "operator.token"
        token.parent.mkdir(parents=True)
        token.write_text("of a proxy that an ordinary user runs")
        if os.geteuid() == 0:
            for each in (token, token.parent, token.parent.parent):
                os.chown(each, NOBODY, NOBODY)
        world = World(folder, interlock, server, f"https://site.test:{port}", host_port)
        world.listeners = listen() | {"service": listen_on_path(folder / "service.sock")}
        kept = listen_on_path(folder / "kept.sock")
        threading.Thread(target=_greet, args=(kept,), daemon=True).start()
        stack.callback(kept.shutdown, socket.SHUT_RDWR)
        for each in world.listeners.values():
            stack.callback(each.close)
        yield world
