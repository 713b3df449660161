"""An agent that tries every way around the proxy. The standard library alone; run inside a confinement.

`python hostile.py JSON`, where JSON has what is outside: `loopback` and `udp` (ports), `addresses` of the machine,
`service` and `kept` (unix sockets), `abstract` (a name), `state` (a folder), `policy` (a file), `site` (a URL),
`host_port` (that is to be reached).
Prints one JSON object: what became of each attempt.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 10
NOWHERE, NOWHERE6 = "203.0.113.9", "2001:db8::9"
PTRACE_ATTACH = 16
LIBC = ctypes.CDLL(None, use_errno=True)


def dial(host: str, port: int, said: bytes = b"GET / HTTP/1.0\r\n\r\n") -> str:
    """Connect, say something, and tell what comes."""
    with socket.create_connection((host, port), LIMIT) as connection:
        connection.sendall(said)
        return f"heard {connection.recv(1 << 16)!r}"


def send(family: int, host: str, port: int, said: bytes = b"out") -> str:
    """Send a datagram, and tell what comes."""
    with socket.socket(family, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1)
        channel.connect((host, port))
        channel.send(said)
        return f"heard {channel.recv(1 << 16)!r}"


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1)


def ask_over_tcp() -> str:
    query = question("example.com")
    return dial(NOWHERE, 53, len(query).to_bytes(2) + query)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return f"exit {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"


def system_call(*words: Any) -> str:
    if LIBC.syscall(*words) >= 0:
        return "done"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def open_socket(family: int, kind: int, protocol: int = 0) -> str:
    with socket.socket(family, kind, protocol):
        return "done"


def ping() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as channel:
        channel.settimeout(1)
        channel.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 0]), (NOWHERE, 0))
        return f"heard {channel.recv(1 << 16)!r}"


def knock(address: str) -> str:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(LIMIT)
        channel.connect(address)
        return f"heard {channel.recv(100)!r}"


def look_under(folder: Path) -> str:
    """Show the covered folder by another view of the one above it, in namespaces of our own."""
    bind = f"mount --bind {folder.parent} /mnt"
    overlay = f"mount -t overlay overlay -o lowerdir={folder.parent}:/mnt /mnt"
    script = f"for view in '{bind}' '{overlay}'; do $view && ls -R /mnt/{folder.name} && umount /mnt; done; exit 1"
    return run("unshare", "-Urm", "sh", "-c", script)


def attach(pid: int) -> str:
    if LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0:
        return "done"
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def kill_first() -> str:
    os.kill(1, signal.SIGKILL)
    os.kill(1, 0)
    return "still there"


def enter_network_of(pid: int) -> str:
    with Path(f"/proc/{pid}/ns/net").open("rb") as handle:
        os.setns(handle.fileno(), os.CLONE_NEWNET)
    return "done"


def type_into_terminal() -> str:
    master, slave = os.openpty()
    fcntl.ioctl(slave, 0x5412, b"x")
    return f"done {master}"


def fetch(url: str) -> str:
    """Fetch with the environment that one makes to go around a proxy."""
    os.environ.pop("HTTPS_PROXY", None)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return f"heard {answer.read()!r}"


def write(path: str) -> str:
    with Path(path).open("ab") as file:
        file.write(b"\n")
    return "done"


def look(path: str) -> str:
    return f"heard {Path(path).read_text()}"


def issuer(host: str, port: int) -> str:
    """Connect to a bare address without a proxy, and tell who signed the certificate that it shows."""
    context = ssl.create_default_context()
    with socket.create_connection((host, port), LIMIT) as raw, context.wrap_socket(raw, server_hostname=host) as tls:
        return f"heard {dict(pair[0] for pair in tls.getpeercert()['issuer'])}"


def attempts(outside: dict[str, Any]) -> dict[str, Callable[[], str]]:
    tries: dict[str, Callable[[], str]] = {
        "host loopback": lambda: dial("127.0.0.1", outside["loopback"]),
        "host loopback, IPv6": lambda: dial("::1", outside["loopback"]),
        "host loopback, UDP": lambda: send(socket.AF_INET, "127.0.0.1", outside["udp"]),
        "address": lambda: dial(NOWHERE, 443),
        "address, IPv6": lambda: dial(NOWHERE6, 443),
        "address, odd port": lambda: dial(NOWHERE, 25, b"HELO x\r\n"),
        "address in TLS": lambda: issuer(NOWHERE, 443),
        "forwarder": lambda: dial("127.0.0.1", 15001, b"CONNECT site.test:443 HTTP/1.1\r\n\r\n"),
        "address of no name": lambda: dial("198.19.77.1", 80),
        "QUIC": lambda: send(socket.AF_INET, NOWHERE, 443),
        "QUIC, IPv6": lambda: send(socket.AF_INET6, NOWHERE6, 443),
        "DNS": lambda: send(socket.AF_INET, NOWHERE, 53, question("example.com")),
        "DNS, IPv6": lambda: send(socket.AF_INET6, NOWHERE6, 53, question("example.com")),
        "DNS, TCP": ask_over_tcp,
        "ICMP": ping,
        "raw socket": lambda: open_socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "packet socket": lambda: open_socket(socket.AF_PACKET, socket.SOCK_RAW),
        "vsock": lambda: open_socket(socket.AF_VSOCK, socket.SOCK_STREAM),
        "io_uring": lambda: system_call(425, 1, ctypes.create_string_buffer(256)),
        "request_key": lambda: system_call(
            249 if os.uname().machine == "x86_64" else 218, b"dns_resolver", b"x.example", b"", 0
        ),
        "terminal": type_into_terminal,
        "nft flush": lambda: run("nft", "flush", "ruleset"),
        "ip route": lambda: run("ip", "route", "flush", "table", "local"),
        "ip link": lambda: run("ip", "link", "add", "d0", "type", "dummy"),
        "new user namespace": lambda: run("unshare", "-Ur", "nft", "flush", "ruleset"),
        "uncover": lambda: run("unshare", "-Urm", "sh", "-c", f"umount {outside['state']}; cat {outside['state']}/*"),
        "look under the cover": lambda: look_under(Path(outside["state"])),
        "mount": lambda: run("umount", "/etc/resolv.conf"),
        "ptrace": lambda: attach(1),
        "kill": kill_first,
        "setns": lambda: enter_network_of(1),
        "environment of the first process": lambda: look("/proc/1/environ"),
        "service": lambda: knock(outside["service"]),
        "abstract service": lambda: knock(f"\0{outside['abstract']}"),
        "kept service": lambda: knock(outside["kept"]),
        "state": lambda: run("sh", "-c", f"ls -R {outside['state']}"),
        "into the state": lambda: write(f"{outside['state']}/x"),
        "policy": lambda: write(outside["policy"]),
        "kernel setting": lambda: write("/proc/sys/kernel/core_pattern"),
        "environment": lambda: fetch(outside["site"]),
        "environment, denied": lambda: fetch("https://denied.test/"),
        "denied in the clear": lambda: fetch("http://denied.test/"),
        "port of the host by name": lambda: fetch(f"http://localhost:{outside['host_port']}/hello.txt"),
        "port of the host by address": lambda: fetch(f"http://127.0.0.1:{outside['host_port']}/hello.txt"),
        "interfaces": lambda: look("/proc/net/dev"),
        "status": lambda: look("/proc/self/status"),
    }
    for address in outside["addresses"]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        tries[f"host {address}"] = lambda address=address: dial(address, outside["loopback"])
        tries[f"host {address}, UDP"] = lambda address=address, family=family: send(family, address, outside["udp"])
    return tries


def attempt(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:  # noqa: BLE001  what became of it
        return f"{type(error).__name__}: {error}"


def main() -> None:
    seen = {name: attempt(work) for name, work in attempts(json.loads(sys.argv[1])).items()}
    sys.stdout.write(json.dumps({**seen, "uid": str(os.getuid())}))


if __name__ == "__main__":
    main()
