"""IP addresses: which addresses they really reach, and the classes they belong to. Pure, no I/O."""

from __future__ import annotations

import ipaddress
from typing import Final

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IPv6 addresses that carry an IPv4 address, which a gateway or a kernel then dials. Without these,
# [64:ff9b::a9fe:a9fe] would reach 169.254.169.254 past a rule that denies it.
_NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_TRANSLATED: Final = ipaddress.IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")
_DIGITS: Final = frozenset("0123456789")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PRIVATE: Final = tuple(
    map(ipaddress.ip_network, _words("10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7 fec0::/10"))
)
# Where clouds hand out credentials: AWS (instance, DNS, time, ECS, EKS), Tencent, Alibaba, Azure, Oracle, Google.
_METADATA: Final = _words(
    "169.254.169.254 169.254.169.253 169.254.169.123 169.254.170.2 169.254.170.23 169.254.0.23 "
    "100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 fd00:ec2::253 fd00:ec2::23 fd20:ce::254"
)
METADATA_ADDRESSES: Final = frozenset(map(ipaddress.ip_address, _METADATA))
METADATA_NAMES: Final = _words(
    "metadata metadata.google.internal metadata.goog metadata.internal instance-data instance-data.ec2.internal "
    "metadata.tencentyun.com metadata.packet.net metadata.platformequinix.com metadata.azure.internal rancher-metadata"
)
# Names from /etc/hosts, and public names whose DNS answer is 127.0.0.1.
_LOOPBACK_NAMES: Final = _words(
    "localhost localhost.localdomain localhost4 localhost6 ip6-localhost ip6-loopback localtest.me lvh.me vcap.me "
    "lacolhost.com"
)
_LOOPBACK_SUFFIXES: Final = (".localhost", ".localhost.localdomain", ".localtest.me", ".lvh.me", ".vcap.me")


def parse_address(text: str) -> Address | None:
    """Return the address that a text is in its standard form, with or without brackets and zone, or None."""
    bare = text.removeprefix("[").removesuffix("]").partition("%")[0]
    # Most names end here: an exception costs far more than this test.
    if ":" not in bare and bare[-1:] not in _DIGITS:
        return None
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        return None


def unwrap(address: Address) -> tuple[Address, ...]:
    """Return the address and every IPv4 address that a gateway or a kernel would dial for it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner: list[Address | None] = [address, address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        inner += address.teredo
    bits = int(address)
    low = ipaddress.IPv4Address(bits & 0xFFFFFFFF)
    if any(address in network for network in _NAT64):
        # RFC 6052, prefix /48: the IPv4 address lies on both sides of bits 64 to 71, which are zero.
        inner += [low, ipaddress.IPv4Address((bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF)]
    isatap = bits >> 32 & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE)
    # Up to ::ffff only ::1 and :: are in use, which are no IPv4 addresses.
    if (address in _COMPATIBLE and bits > 0xFFFF) or address in _TRANSLATED or isatap:
        inner.append(low)
    return tuple(dict.fromkeys(a for a in inner if a is not None))


def classes_of(address: Address) -> frozenset[str]:
    """Return the classes of one address; `public` stands alone."""
    unspecified = address.is_unspecified or address in _THIS_NETWORK
    holds = {
        "metadata": address in METADATA_ADDRESSES,
        # On Linux a connection to 0.0.0.0 reaches the machine itself.
        "loopback": address.is_loopback or unspecified,
        "unspecified": unspecified,
        "link_local": address.is_link_local,
        "private": any(address in network for network in _PRIVATE if network.version == address.version),
        "multicast": address.is_multicast,
    }
    found = frozenset(name for name, held in holds.items() if held)
    return found or frozenset({"reserved" if address.is_reserved or not address.is_global else "public"})


def classes_of_name(name: str) -> frozenset[str]:
    """Return the classes of addresses that a name is known to resolve to; none for an ordinary name."""
    if name in METADATA_NAMES:
        return frozenset({"metadata"})
    if name in _LOOPBACK_NAMES or name.endswith(_LOOPBACK_SUFFIXES):
        return frozenset({"loopback"})
    return frozenset()
