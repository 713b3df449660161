"""A network of nothing but loopback, and the sockets in it through which connections leave by the proxy.

Every address is made one of the namespace's own, so a listener on a port gets each connection to that port, whatever
host it was for. No program has to be started for it, and no packet has a way out.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import struct

from proxy.sandbox.kernel_calls import SandboxError

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
RTM_NEWADDR, RTM_NEWROUTE = 20, 24
REQUEST_CREATE = 0x1 | 0x4 | 0x400  # NLM_F_REQUEST, ACK and CREATE
TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL, RTA_OIF = 255, 3, 254, 2, 4
IFA_ADDRESS, IFA_LOCAL = 1, 2
NETLINK_ERROR = 2
LOOPBACK = 1  # its index in every namespace
# Without any address but loopback, the C library's getaddrinfo returns none: the IPv4 dummy address (RFC 7600).
OWN_ADDRESS = bytes((192, 0, 0, 8))
DNS_PORT = 53
BACKLOG = 1024


def bring_up() -> None:
    """Switch loopback on. Raises SandboxError."""
    asked = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack_from("16sH", fcntl.ioctl(asked.fileno(), SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(asked.fileno(), SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
    finally:
        asked.close()


def route_everything_here() -> None:
    """Make every address this namespace's own. Raises SandboxError; a machine without IPv6 needs no route for it."""
    address = struct.pack("=BBBBI", _socket.AF_INET, 32, 0, 0, LOOPBACK)
    address += _attribute(IFA_LOCAL, OWN_ADDRESS) + _attribute(IFA_ADDRESS, OWN_ADDRESS)
    _ask(RTM_NEWADDR, address)
    _ask(RTM_NEWROUTE, _route(_socket.AF_INET))
    try:
        _ask(RTM_NEWROUTE, _route(_socket.AF_INET6))
    except SandboxError:
        if os.path.exists("/proc/sys/net/ipv6"):  # noqa: PTH110
            raise


def _route(family: int) -> bytes:
    head = struct.pack("=BBBBBBBBI", family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL, 0)
    return head + _attribute(RTA_OIF, struct.pack("=I", LOOPBACK))


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _ask(kind: int, body: bytes) -> None:
    kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, 0)
    try:
        kernel.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST_CREATE, 1, 0) + body)
        answer = kernel.recv(4096)
    finally:
        kernel.close()
    code = -struct.unpack_from("=i", answer, 16)[0] if struct.unpack_from("=H", answer, 4)[0] == NETLINK_ERROR else 0
    if code not in (0, errno.EEXIST):
        raise SandboxError(f"a route to loopback: {os.strerror(code)}")


def listen(ports: list[int], dns_port: int = DNS_PORT) -> list[_socket.socket]:
    """Return listeners: for connections to each of `ports`, then for DNS over UDP and TCP; IPv4, then IPv6."""
    made: list[_socket.socket] = []
    for family, anywhere in ((_socket.AF_INET, "0.0.0.0"), (_socket.AF_INET6, "::")):  # noqa: S104  of the namespace
        try:
            made += [_bind(family, _socket.SOCK_STREAM, anywhere, port) for port in ports]
            made.append(_bind(family, _socket.SOCK_DGRAM, anywhere, dns_port))
            made.append(_bind(family, _socket.SOCK_STREAM, anywhere, dns_port))
        except OSError as error:
            if family == _socket.AF_INET:
                raise SandboxError(f"listening for the server's connections: {error.strerror}") from error
    return made


def _bind(family: int, kind: int, host: str, port: int) -> _socket.socket:
    made = _socket.socket(family, kind)
    try:
        if family == _socket.AF_INET6:
            made.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        if kind == _socket.SOCK_STREAM:
            made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made
