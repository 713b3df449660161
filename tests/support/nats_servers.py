"""Real nats-servers with JetStream for tests: one, or a cluster of several that can be killed."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.timeouts import PATIENCE

SERVER = shutil.which("nats-server") or str(Path(__import__("sys").executable).parent / "nats-server")


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in made:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in made]


class NatsServers:
    """Nodes on loopback. Use it as a context; `kill` and `start` take a node's number, from 0."""

    def __init__(self, nodes: int = 1, more: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-nats-"))
        ports = free_ports(3 * nodes)
        self.ports, self._routes, self._monitors = ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(nodes):
            (self.folder / f"{number}.conf").write_text(self._configuration(number, more))

    def _configuration(self, number: int, more: str) -> str:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        cluster = f'cluster {{ name: c, listen: "127.0.0.1:{self._routes[number]}", routes: [{routes}] }}'
        return "\n".join(
            (
                f'server_name: n{number}\nlisten: "127.0.0.1:{self.ports[number]}"',
                f'http: "127.0.0.1:{self._monitors[number]}"',
                f'jetstream {{ store_dir: "{self.folder}/{number}" }}',
                cluster if len(self.ports) > 1 else "",
                more,
            )
        )

    @property
    def urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self.ports]

    def __enter__(self) -> Self:
        for number in range(len(self.ports)):
            self.start(number, wait=False)
        for number in range(len(self.ports)):
            self._wait(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._processes):
            self.kill(number)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, number: int = 0, *, wait: bool = True) -> None:
        with (self.folder / f"{number}.log").open("ab") as log:
            command = [SERVER, "-c", str(self.folder / f"{number}.conf")]
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)
        if wait:
            self._wait(number)

    def kill(self, number: int = 0) -> None:
        """End a node as a crash would."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def _wait(self, number: int) -> None:
        """Wait until a node serves, and, in a cluster, until it knows the leader of the others."""
        url = f"http://127.0.0.1:{self._monitors[number]}/healthz?js-enabled-only=true"
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=1) as answer:
                if json.loads(answer.read()).get("status") == "ok":
                    return
            assert time.monotonic() < deadline, (self.folder / f"{number}.log").read_text()[-2000:]
            assert self._processes[number].poll() is None, (self.folder / f"{number}.log").read_text()[-2000:]
            time.sleep(0.02)


@contextlib.contextmanager
def nats_servers(nodes: int = 1, more: str = "") -> Iterator[NatsServers]:
    with NatsServers(nodes, more) as servers:
        yield servers
