"""Sets up the files and the network of a confined agent. Runs inside its namespaces, before the agent.

The agent sees the machine's files, except what would let it have something done outside:
sockets of services, and the proxy's keys and operators' API.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.confine.firewall import FORWARDER_PORT, RESOLVER_PORT, ruleset
from proxy.sandbox import namespaces
from proxy.sandbox.namespaces import MS_BIND, MS_NODEV, MS_NOSUID, NamespaceError, OverMount, mount, over_mount

if TYPE_CHECKING:
    from proxy.confine.file_view import FileView

# Without any address but loopback, the C library's getaddrinfo (AI_ADDRCONFIG) returns none; this is the IPv4
# dummy address (RFC 7600).
OWN_ADDRESS = "192.0.0.8/32"
FAMILIES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
# Root may write these without any capability, and some of them start programs outside (core_pattern).
UNWRITABLE = ("/proc/sys", "/proc/sysrq-trigger")
MNT_DETACH = 2
STAGING = "/tmp"  # noqa: S108  covered with a tmpfs for a moment, for files that are on no disk


@dataclass(frozen=True, slots=True)
class ListeningSockets:
    """What the forwarder and the resolver listen on; there may be none for IPv6."""

    forwarder: list[socket.socket]
    datagrams: list[socket.socket]
    streams: list[socket.socket]


def arrange_files(files: FileView, hostname: str) -> None:
    """Apply a view to the mounts. Raises NamespaceError where a mount is refused, OSError where a file is."""
    # By descriptor: their folders are about to be covered.
    kept = [(path, os.open(path, os.O_PATH)) for path in files.kept]
    # Before any other mount, which would else appear outside where the machine's mounts are shared.
    mount(None, "/", None, namespaces.MS_REC | namespaces.MS_PRIVATE)
    namespaces.mount_proc()
    for path in files.sockets:  # bound in another mount namespace, the same path may be something else here
        if path not in files.kept and _is_socket(path):
            over_mount(OverMount(path, "/dev/null"))
    for path in files.secrets:
        over_mount(OverMount(path, "/dev/null"))
    for path in files.folders:
        over_mount(OverMount(path))
    for path, content in files.given.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)
    for path, handle in kept:
        _show(path, handle)
        os.close(handle)
    _replace_files(own_files(hostname), files.folders)
    for path in (*UNWRITABLE, *files.unwritable):
        if os.path.exists(path):  # noqa: PTH110  last, since `given` files are written into state folders above
            mount(path, path, None, MS_BIND | namespaces.MS_REC)
            namespaces.set_read_only(path, on=True, flags=namespaces.AT_RECURSIVE)
    if os.path.ismount("/sys"):
        namespaces.set_read_only("/sys", on=True, flags=namespaces.AT_RECURSIVE)


def _is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):  # where we may not look the agent may not either
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
    return False


def _show(path: str, handle: int) -> None:
    # Where its folder was covered, the socket is bound back from its descriptor.
    if not os.path.exists(path):  # noqa: PTH110
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
        mount(f"/proc/self/fd/{handle}", path, None, MS_BIND)


def own_files(hostname: str) -> dict[str, str]:
    """Return the files that direct name lookups to our resolver alone."""
    try:
        switch = Path("/etc/nsswitch.conf").read_text()
    except OSError:
        switch = ""
    return {
        "/etc/resolv.conf": "nameserver 127.0.0.1\n",
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n",
        "/etc/nsswitch.conf": re.sub(r"(?m)^\s*hosts:.*$", "hosts: files dns", switch),
    }


def _replace_files(contents: dict[str, str], covered: tuple[str, ...]) -> None:
    """Mount files from memory over the machine's; missing ones are created in covered folders only."""
    mount("tmpfs", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for path, text in contents.items():
        source = Path(STAGING, Path(path).name)
        source.write_text(text)
        target = os.path.realpath(path)
        if not os.path.exists(target) and any(Path(target).is_relative_to(folder) for folder in covered):  # noqa: PTH110
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).touch()
        if os.path.exists(target):  # noqa: PTH110  without a resolv.conf, the C library asks 127.0.0.1
            mount(str(source), target, None, MS_BIND)
            namespaces.set_read_only(target, on=True)
    if ctypes.CDLL(None, use_errno=True).umount2(STAGING.encode(), MNT_DETACH) != 0:
        raise NamespaceError(f"uncovering {STAGING}: {os.strerror(ctypes.get_errno())}")


def arrange_network(host_ports: tuple[int, ...] = ()) -> ListeningSockets:
    """Redirect all traffic to the sockets that are returned. Raises NamespaceError, OSError."""
    namespaces.route_all_to_loopback(OWN_ADDRESS)
    namespaces.run_program("nft", "-f", "-", stdin=ruleset(host_ports=host_ports))
    return bind_sockets(FORWARDER_PORT, RESOLVER_PORT)


def bind_sockets(port: int, resolver_port: int) -> ListeningSockets:
    """Listen where the firewall rules redirect to. Raises OSError where a port is taken; IPv6 is optional."""
    made = ListeningSockets([], [], [])
    for family, host in FAMILIES:
        try:
            made.forwarder.append(_bind(family, socket.SOCK_STREAM, host, port))
            made.datagrams.append(_bind(family, socket.SOCK_DGRAM, host, resolver_port))
            made.streams.append(_bind(family, socket.SOCK_STREAM, host, resolver_port))
        except OSError:
            if family == socket.AF_INET:
                raise
    return made


def _bind(family: int, kind: int, host: str, port: int) -> socket.socket:
    made = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        if kind == socket.SOCK_STREAM:
            made.listen(1024)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"{error.strerror} on {host} port {port}") from error
    return made
