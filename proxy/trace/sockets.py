"""Follows sockets by inode: their kind and peer, and so what is sent to whom. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proxy.egress.dns import PORTS, query_names
from proxy.trace.arguments import Address, address, buffers, descriptor, message, messages, quoted, returned
from proxy.trace.capability import Capability, Observation, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.trace.strace import Syscall

type Made = Iterator[Observation]
type Make = Callable[..., Observation]

MAX_SOCKETS = 1 << 14
INTERNET = frozenset({"AF_INET", "AF_INET6"})
# By these a process talks to the kernel alone.
SILENT = frozenset({"AF_NETLINK", "AF_ALG", "AF_UNSPEC"})
# The connection is being made: no failure.
UNDER_WAY = frozenset({"EINPROGRESS", "EINTR", "EALREADY", "EISCONN"})


@dataclass(frozen=True, slots=True)
class Socket:
    family: str | None = None
    kind: str = ""
    local: Address | None = None
    peer: Address | None = None
    accepted: bool = False


class SocketTable:
    """The sockets of one trace. Handlers take a call, its arguments, and a function that makes an observation."""

    def __init__(self) -> None:
        # By inode: with -y strace prints that for every descriptor, and descriptors are duplicated and inherited.
        self._known: OrderedDict[int, Socket] = OrderedDict()
        self.handlers: dict[str, Callable[[Syscall, list[str], Make], Made]] = {
            "socket": self._made,
            "bind": self._bound,
            "listen": self._listened,
            **dict.fromkeys(("accept", "accept4"), self._accepted),
            "connect": self._connected,
            **dict.fromkeys(("sendto", "sendmsg", "sendmmsg"), self._sent_messages),
        }

    def _get(self, inode: int | None) -> Socket:
        return Socket() if inode is None else self._known.get(inode, Socket())

    def _put(self, inode: int, known: Socket) -> None:
        self._known[inode] = known
        self._known.move_to_end(inode)
        if len(self._known) > MAX_SOCKETS:
            self._known.popitem(last=False)

    def _made(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        if len(arguments) < 2:
            return
        made = returned(call.value, call.returned)
        family, kind = arguments[0], arguments[1].partition("|")[0]
        if made is not None and made.inode is not None:
            self._put(made.inode[1], Socket(family, kind))
        # Also where the kernel refuses it: who asks for one wants to read or forge the traffic of others.
        if family == "AF_PACKET" or (kind == "SOCK_RAW" and family in INTERNET):
            yield make(Capability.NET_CONNECT, "raw socket", peer=family)

    def _bound(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        inode, local = _inode(arguments), address(arguments[1]) if len(arguments) > 1 else None
        if inode is None or local is None:
            return
        known = replace(self._get(inode), local=local, family=local.family)
        self._put(inode, known)
        if local.family in INTERNET and known.kind == "SOCK_DGRAM" and local.port:
            yield make(Capability.NET_LISTEN, "bind", peer=show(local))

    def _listened(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        inode = _inode(arguments)
        local = self._get(inode).local or Address("AF_INET")
        if inode is not None and local.family == "AF_UNIX":
            yield make(Capability.IPC_UNIX, "listen", path=show(local))
        elif inode is not None:
            yield make(Capability.NET_LISTEN, "listen", peer=show(local))

    def _accepted(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        made = returned(call.value, call.returned)
        peer = address(arguments[1]) if len(arguments) > 1 else None
        if made is None or made.inode is None:
            return
        family = peer.family if peer else self._get(_inode(arguments)).family
        if family in INTERNET:
            peer = peer or Address(family or "")
            yield make(Capability.NET_LISTEN, "accept", peer=show(peer))
        self._put(made.inode[1], Socket(family, "SOCK_STREAM", peer=peer, accepted=True))

    def _connected(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        inode, peer = _inode(arguments), address(arguments[1]) if len(arguments) > 1 else None
        if peer is None or peer.family in SILENT:
            return
        known = replace(self._get(inode), peer=peer, family=peer.family)
        if inode is not None:
            self._put(inode, known)
        error = None if call.error in UNDER_WAY else call.error
        if peer.family == "AF_UNIX":
            yield make(Capability.IPC_UNIX, "connect", path=show(peer), error=error)
        # A datagram socket that connects sends nothing: resolvers do so to find out their own address.
        elif known.kind != "SOCK_DGRAM":
            yield make(Capability.NET_CONNECT, "connect", peer=show(peer), error=error)

    def _sent_messages(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        if len(arguments) < 2:
            return
        if call.name == "sendto":
            data, to = quoted(arguments[1]), address(arguments[4]) if len(arguments) > 4 else None
            yield from self.sent(call, _inode(arguments), to, data.data if data else b"", make)
            return
        # The C library asks for A and AAAA in one sendmmsg: each message is a query of its own.
        for sent in messages(arguments[1]) if call.name == "sendmmsg" else (message(arguments[1]),):
            yield from self.sent(call, _inode(arguments), sent.to, b"".join(part.data for part in sent.parts), make)

    def written(self, call: Syscall, arguments: list[str], inode: int, make: Make) -> Made:
        plain = quoted(arguments[1]) if len(arguments) > 1 else None
        parts = (plain,) if plain else buffers(arguments[1]) if len(arguments) > 1 else ()
        yield from self.sent(call, inode, None, b"".join(part.data for part in parts), make)

    def sent(self, call: Syscall, inode: int | None, to: Address | None, data: bytes, make: Make) -> Made:
        """Yield observations of what is sent on a socket: to `to`, or else to its peer."""
        known = self._get(inode)
        peer = to or known.peer
        if peer is None or peer.family in SILENT:
            return
        if peer.family == "AF_UNIX":
            if to is not None:  # else its connect was observed already
                yield make(Capability.IPC_UNIX, "send", path=show(peer), data=data)
            return
        names = query_names(data, framed=known.kind == "SOCK_STREAM") if peer.port in PORTS else []
        for name in names:
            yield make(Capability.NET_DNS, "query", peer=show(peer), name=name, data=data)
        if not names:
            kind = Capability.NET_LISTEN if known.accepted else Capability.NET_CONNECT
            yield make(kind, "send", peer=show(peer), data=data)


def _inode(arguments: list[str]) -> int | None:
    read = descriptor(arguments[0]) if arguments else None
    inode = read.inode if read else None
    return inode[1] if inode else None


def show(peer: Address) -> str:
    if peer.family == "AF_UNIX":
        return ("@" if peer.abstract else "") + text(peer.path or b"")
    if peer.host is None:
        return f"{peer.family}:{peer.port}" if peer.port is not None else peer.family
    return f"[{peer.host}]:{peer.port}" if ":" in peer.host else f"{peer.host}:{peer.port}"
