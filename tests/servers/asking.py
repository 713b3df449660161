"""A stdio server whose tools read files and fetch pages by five different clients. The standard library alone."""

from __future__ import annotations

import http.client
import os
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tiny import Tiny

server = Tiny("asking")
TEXT = {"type": "string"}
NODE_FETCH = (
    "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t)).catch(e => console.log(e.cause.code))"
)
NODE_HTTP = "require('http').get(process.argv[1], r => r.pipe(process.stdout)).on('error', e => console.log(e.code))"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def by_http_client(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=20)
    connection.request("GET", parts.path)
    return connection.getresponse().read().decode()


def by_another_name(text: str) -> str:
    """Visit another host than the one that the call names; which one is hidden in the arguments."""
    url, hidden = text.split()
    return run("curl", "-s", "-m", "20", f"http://{bytes.fromhex(hidden).decode()}:{urlsplit(url).port}/")


CLIENTS = {
    "curl": lambda url: run("curl", "-s", "-m", "20", url),
    "urllib": lambda url: urllib.request.urlopen(url, timeout=20).read().decode(),
    "http.client": by_http_client,
    "node fetch": lambda url: run("node", "-e", NODE_FETCH, url),
    "node http": lambda url: run("node", "-e", NODE_HTTP, url),
}


@server.tool("Fetches a page", {"client": TEXT, "url": TEXT})
def fetch(client: str, url: str) -> str:
    return by_another_name(url) if client == "split" else CLIENTS[client](url)


@server.tool("Reads a file", {"path": TEXT})
def read(path: str) -> str:
    return Path(path).read_text()


@server.tool("Writes a file", {"path": TEXT, "text": TEXT})
def write(path: str, text: str) -> str:
    return str(Path(path).write_text(text))


@server.tool("Renames a file or a folder", {"path": TEXT, "to": TEXT})
def rename(path: str, to: str) -> str:
    return str(Path(path).rename(to))


@server.tool("Sends a datagram to a unix socket from one of a pair", {"path": TEXT})
def send(path: str) -> str:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        return str(ours.sendto(b"x", path))


@server.tool("Reads what a unix socket says first", {"path": TEXT})
def connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(20)
        made.connect(path)
        return made.recv(100).decode()


@server.tool("Writes a line to stderr, and says what that is", {"text": TEXT})
def log(text: str) -> str:
    os.write(2, f"{text}\n".encode())
    return "pipe" if stat.S_ISFIFO(os.fstat(2).st_mode) else "something else"


@server.tool("Says which process it is", {})
def process() -> str:
    return f"{os.getpid()} {os.uname().nodename}"


@server.tool("Starts a process that outlives the call", {})
def linger() -> str:
    child = os.fork()
    if child == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.close(stream)
        while True:
            os.read(os.pipe()[0], 1)
    return "started"


if __name__ == "__main__":
    server.run()
