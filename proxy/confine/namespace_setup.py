"""Makes the place that an agent is confined to: its files, and its network. Runs inside, before the agent.

The agent sees the machine's files, but for what would let it ask somebody outside
to act for it: sockets of services, the proxy's keys and its operators' door.
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
from proxy.sandbox.namespaces import (
    AT_RECURSIVE,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NamespaceError,
    OverMount,
    mount,
    over_mount,
    route_all_to_loopback,
    run_program,
    set_read_only,
)

if TYPE_CHECKING:
    from proxy.confine.file_view import FileView

OWN_ADDRESS = "192.0.0.8/32"
"""A machine without an address of its own is told of none by the C library; this one is set aside to be nobody's."""
FAMILIES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
UNWRITABLE = ("/proc/sys", "/proc/sysrq-trigger")
"""Root may write these though it has no capability, and by some of them starts programs outside."""
MNT_DETACH = 2
LOBBY = "/tmp"  # noqa: S108  covered for a moment, to have files in that are on no disk


@dataclass(frozen=True, slots=True)
class ListeningSockets:
    """What the forwarder and the resolver listen on; of IPv6 there may be none."""

    forwarder: list[socket.socket]
    datagrams: list[socket.socket]
    streams: list[socket.socket]


def arrange_files(files: FileView, hostname: str) -> None:
    """Cover what is to be covered. Raises NamespaceError where a mount is refused, OSError where a file is."""
    kept = [(path, os.open(path, os.O_PATH)) for path in files.kept]
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    for path in files.sockets:  # of another mount namespace's, the path may be of something else here
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
        if os.path.exists(path):  # noqa: PTH110
            mount(path, path, None, MS_BIND | MS_REC)
            set_read_only(path, on=True, flags=AT_RECURSIVE)
    if os.path.ismount("/sys"):
        set_read_only("/sys", on=True, flags=AT_RECURSIVE)


def _is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):  # where we may not look the agent may not either
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
    return False


def _show(path: str, handle: int) -> None:
    """Put back what a covered folder hid."""
    if not os.path.exists(path):  # noqa: PTH110
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
        mount(f"/proc/self/fd/{handle}", path, None, MS_BIND)


def own_files(hostname: str) -> dict[str, str]:
    """Return the files that lead name lookups to our resolver and to nobody else."""
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
    """Lay files that are on no disk over the machine's; what is not there is made in covered folders alone."""
    mount("tmpfs", LOBBY, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for path, text in contents.items():
        source = Path(LOBBY, Path(path).name)
        source.write_text(text)
        target = os.path.realpath(path)
        if not os.path.exists(target) and any(Path(target).is_relative_to(folder) for folder in covered):  # noqa: PTH110
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).touch()
        if os.path.exists(target):  # noqa: PTH110  else names are asked of 127.0.0.1, which is right
            mount(str(source), target, None, MS_BIND)
            set_read_only(target, on=True)
    if ctypes.CDLL(None, use_errno=True).umount2(LOBBY.encode(), MNT_DETACH) != 0:
        raise NamespaceError(f"uncovering {LOBBY}: {os.strerror(ctypes.get_errno())}")


def arrange_network(host_ports: tuple[int, ...] = ()) -> ListeningSockets:
    """Make every address local, and lead all to the sockets that are given. Raises NamespaceError, OSError."""
    route_all_to_loopback(OWN_ADDRESS)
    run_program("nft", "-f", "-", stdin=ruleset(host_ports=host_ports))
    return bind_sockets(FORWARDER_PORT, RESOLVER_PORT)


def bind_sockets(port: int, resolver_port: int) -> ListeningSockets:
    """Listen where the rules lead to. Raises OSError where somebody else does; of IPv6 there need be none."""
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
