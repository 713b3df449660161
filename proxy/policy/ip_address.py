"""Addresses: what they really are, and which class they belong to. Pure, no I/O."""

from __future__ import annotations

import ipaddress
from typing import Final

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_TRANSLATED: Final = ipaddress.IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_PRIVATE: Final = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10"),
    )
)
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
METADATA_ADDRESSES: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",
            "169.254.169.253",
            "169.254.169.123",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::253",
            "fd00:ec2::23",
            "fd20:ce::254",
        ),
    )
)
METADATA_NAMES: Final = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.internal",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata.tencentyun.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.azure.internal",
        "rancher-metadata",
    }
)


_DIGITS: Final = frozenset("0123456789")


def parse_address(text: str) -> Address | None:
    """Read an address in its strict spelling, brackets and zone allowed."""
    bare = text.removeprefix("[").removesuffix("]").partition("%")[0]
    if ":" not in bare and bare[-1:] not in _DIGITS:  # most names end here, and to raise costs much
        return None
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        return None


def unwrap(address: Address) -> tuple[Address, ...]:
    """Return the address and every IPv4 address that a gateway or kernel would make of it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner: list[Address | None] = [address, address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        inner += address.teredo
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _NAT64):
        inner.append(low)
        inner.append(_nat64_local(address))
    if (address in _COMPATIBLE and int(address) > 0xFFFF) or address in _TRANSLATED or _is_isatap(address):
        inner.append(low)
    return tuple(dict.fromkeys(a for a in inner if a is not None))


def _nat64_local(address: ipaddress.IPv6Address) -> Address:
    """Read the RFC 6052 form of a /48 prefix, where the address goes around bits 64 to 71."""
    bits = int(address)
    high = (bits >> 64) & 0xFFFF
    low = (bits >> 40) & 0xFFFF
    return ipaddress.IPv4Address(high << 16 | low)


def _is_isatap(address: ipaddress.IPv6Address) -> bool:
    return (int(address) >> 32) & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE)


def classes_of(address: Address) -> frozenset[str]:
    """Return the classes of one address; `public` stands alone."""
    found = set()
    if address in METADATA_ADDRESSES:
        found.add("metadata")
    if address.is_loopback:
        found.add("loopback")
    if address.is_unspecified or address in _THIS_NETWORK:
        # A connection to 0.0.0.0 reaches the machine itself.
        found |= {"unspecified", "loopback"}
    if address.is_link_local:
        found.add("link_local")
    if any(address in network for network in _PRIVATE if network.version == address.version):
        found.add("private")
    if address.is_multicast:
        found.add("multicast")
    if not found and (address.is_reserved or not address.is_global):
        found.add("reserved")
    return frozenset(found or {"public"})


def classes_of_name(name: str) -> frozenset[str]:
    """Return the classes that a name is known to lead to; none for an ordinary name."""
    if name in METADATA_NAMES:
        return frozenset({"metadata"})
    if name in _LOOPBACK_NAMES or name.endswith(_LOOPBACK_SUFFIXES):
        return frozenset({"loopback"})
    return frozenset()


_LOOPBACK_NAMES: Final = frozenset(
    {
        "localhost",
        "localhost.localdomain",
        "localhost4",
        "localhost6",
        "ip6-localhost",
        "ip6-loopback",
        "localtest.me",
        "lvh.me",
        "vcap.me",
        "lacolhost.com",
    }
)
_LOOPBACK_SUFFIXES: Final = (".localhost", ".localhost.localdomain", ".localtest.me", ".lvh.me", ".vcap.me")
