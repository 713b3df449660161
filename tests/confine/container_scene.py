"""A container's network that an agent shares with the proxy: run by root as `python -m tests.confine.container_scene`.

The network has an interface with a default route, whose packets are counted. The proxy's user is root, the agent
is nobody in particular; the proxy is one that notes whom it is asked for. Prints one JSON object of what happened.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  what the agent's user could not import
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from proxy.confine.firewall import ruleset
from proxy.confine.forwarder import start_gateway
from proxy.confine.namespace_setup import bind_sockets
from proxy.sandbox.namespaces import run_program
from tests.confine.hostile import NOWHERE, NOWHERE6, attempt, dial, question, send
from tests.confine.ordinary import NOBODY

PORT, RESOLVER = 15006, 15054
COUNTER = """
table inet count {
  chain out {
    type filter hook postrouting priority 300; policy accept;
    oifname "d0" meta l4proto { tcp, udp } counter
  }
}
"""


def arrange() -> None:
    os.unshare(os.CLONE_NEWNET)
    for words in (
        "link set lo up",
        "link add d0 type veth peer name d1",
        "addr add 172.30.0.2/24 dev d0",
        "addr add fd00:30::2/64 dev d0 nodad",
        "link set d1 up",
        "link set d0 up",
        "route add default via 172.30.0.1 dev d0",
        "-6 route add default dev d0",
    ):
        run_program("ip", *words.split())
    run_program("nft", "-f", "-", stdin=COUNTER)
    run_program("nft", "-f", "-", stdin=ruleset(proxy_uid=0, port=PORT, resolver_port=RESOLVER))


def as_agent(work: Callable[[], str]) -> str:
    """Do something as the agent's user, in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os.write(writing, attempt(work).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return said


def packets() -> int:
    """Return how many packets have left."""
    told = subprocess.run(["nft", "list", "table", "inet", "count"], capture_output=True, text=True, check=True)
    found = re.search(r"packets (\d+)", told.stdout)
    assert found
    return int(found[1])


def serve(notes: int) -> NoReturn:
    """Be the proxy and the gateway; note on which ends a tunnel was asked for."""

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        os.write(notes, (await reader.readuntil(b"\r\n\r\n")).split()[1] + b"\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        kept = await start_gateway(server.sockets[0].getsockname(), None, bind_sockets(PORT, RESOLVER), lambda _: None)
        os.write(notes, b"ready\n")
        await asyncio.gather(*(each.serve_forever() for each in kept))

    asyncio.run(run())
    os._exit(1)


def main() -> None:
    arrange()
    reading, writing = os.pipe()
    server = os.fork()
    if server == 0:
        serve(writing)
    os.close(writing)
    with os.fdopen(reading) as notes:
        assert notes.readline() == "ready\n"
        tries: dict[str, Callable[[], str]] = {
            "name": lambda: send(socket.AF_INET, "127.0.0.11", 53, question("mcp.test")),
            "connection to the name": lambda: dial("198.18.0.1", 443),
            "address": lambda: dial(NOWHERE, 443),
            "UDP": lambda: send(socket.AF_INET, NOWHERE, 443),
            "UDP, IPv6": lambda: send(socket.AF_INET6, NOWHERE6, 443),
            "Docker's resolver by its own port": lambda: send(socket.AF_INET, "127.0.0.11", 40000),
        }
        seen = {name: as_agent(work) for name, work in tries.items()}
        sent_by_agent = packets()
        attempt(lambda: send(socket.AF_INET, NOWHERE, 443))  # the proxy's own user is let out
        os.kill(server, signal.SIGKILL)
        asked = notes.read().split()
    told = {"seen": seen, "asked": asked, "sent by the agent": sent_by_agent, "sent": packets()}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
