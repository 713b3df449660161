"""The hosts that a string may name when a server takes it for a URL, a host or an address. Pure, no I/O.

`ada_url` reads URLs as browsers and Node do (WHATWG), `urllib` as many Python servers do.
Where they disagree on the host, an attacker can show one host to the proxy and reach another.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import string
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import ada_url

from proxy.policy.ip_address import Address, classes_of, classes_of_name, parse_address, unwrap
from proxy.policy.text import clean, read_text

_SPECIAL: Final = frozenset({"http", "https", "ws", "wss", "ftp"})
_SCHEME: Final = frozenset(string.ascii_letters + string.digits + "+-.")
_LOGIN: Final = frozenset(string.ascii_letters + string.digits + "+-._:")
# A user's name without a dot cannot be taken for a host.
_WEB_LOGIN: Final = re.compile(r"[A-Za-z0-9_+-]+(?::[A-Za-z0-9_.~+=-]*)?@[A-Za-z0-9.-]+(?::\d+)?")
_ENDS: Final = frozenset(" \t\r\n\"'<>`{}|^")
# WHATWG readers drop tab and newlines anywhere in a URL: "ht\ntp://169.254.\t169.254/".
_CONTROL: Final = {9: None, 10: None, 13: None}
_QUOTES: Final = "\"'`<>(){}"
_MAX: Final = 8192
# Cyrillic, Greek and other letters that look like Latin ones: xn--pple-43d.com is shown as "apple.com".
_LOOKALIKES: Final = str.maketrans(
    "аеорсухіјѕһԁԛԝъьαβεικνορτυχωɑɡıłøđħŧƅո",
    "aeopcyxijshdqwbbabeiknoptuxwagilodhtbn",
)


class Host(NamedTuple):
    """One host: its canonical name, and the addresses that the name is a form of."""

    name: str
    addresses: tuple[Address, ...] = ()

    def classes(self) -> tuple[frozenset[str], ...]:
        """Return the classes of each address, or of the name where it has none."""
        if self.addresses:
            return tuple(classes_of(address) for address in self.addresses)
        known = classes_of_name(self.name)
        return (known,) if known else ()


class UrlViews(NamedTuple):
    """The hosts and schemes that one string may name: `exact` to a careful reader, the others to any reader."""

    exact: tuple[Host, ...]
    hosts: tuple[Host, ...]
    exact_schemes: tuple[str, ...]
    schemes: tuple[str, ...]
    problem: str | None = None


@dataclass(slots=True)
class _Collector:
    exact: dict[Host, None] = field(default_factory=dict)
    hosts: dict[Host, None] = field(default_factory=dict)
    exact_schemes: dict[str, None] = field(default_factory=dict)
    schemes: dict[str, None] = field(default_factory=dict)
    problem: str | None = None


def read_url(raw: str) -> UrlViews:
    """Return every host and scheme that `raw` may name."""
    found = _Collector()
    text = read_text(raw[:_MAX])
    if len(raw) > _MAX:
        found.problem = f"longer than {_MAX} characters"
    for reading in text.readings:
        _read_one(reading, found)
    if found.hosts and text.problem:
        found.problem = text.problem
    hosts, schemes = tuple(found.hosts), tuple(found.schemes)
    return UrlViews(tuple(found.exact), hosts, tuple(found.exact_schemes), schemes, found.problem)


def _read_one(reading: str, found: _Collector) -> None:
    text = reading.translate(_CONTROL).strip("".join(map(chr, range(33))))
    if not text:
        return
    _read_schemes(text, found)
    if _is_url(text):
        _read_whole(text, found)
    elif _is_hostlike(text):
        _read_bare(text, found)
    elif text[0] in _QUOTES and _is_hostlike(text.strip(_QUOTES)):
        _add(_canonical(_authority("//" + text.strip(_QUOTES))), found)
    # A server may fetch a URL that is in a query or in prose: "https://proxy/?url=http://169.254.169.254/".
    for url in _urls_inside(text):
        _add(_host_by_standard(url), found)


def _is_url(text: str) -> bool:
    # WHATWG takes backslashes for slashes, and http:host for http://host.
    if text.startswith(("//", "\\\\", "/\\", "\\/")):
        return True
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme or not scheme[0].isalpha() or not _SCHEME.issuperset(scheme):
        return False
    return rest.startswith(("//", "\\\\", "/\\", "\\/")) or scheme.lower() in _SPECIAL


def _is_hostlike(text: str) -> bool:
    return _ENDS.isdisjoint(text) and not text.startswith(("/", "."))


def _read_whole(text: str, found: _Collector) -> None:
    # "http://good.com\\@evil.com": the host is good.com to a browser and evil.com to RFC 3986.
    if "\\" in text.partition("?")[0]:
        found.problem = "a backslash in a URL"
    authority = _authority(text)
    # "https://good.com@evil.com/" shows one host and reaches the other; "https://me@bitbucket.org/" shows no other.
    if "@" in authority:
        web = text.partition(":")[0].lower() in _SPECIAL
        if text[0] in "/\\" or not (_WEB_LOGIN.fullmatch(authority) if web else _is_login(authority)):
            found.problem = "a user name in a URL"
        for part in authority.split("@"):
            _add(_canonical(part), found)
    standard = _host_by_standard(text)
    if standard is None:
        found.problem = "a URL that has no readable host" if authority else found.problem
    else:
        _add(standard, found, exact=True)
    other = _host_by_urllib(text)
    if other is not None and (standard is None or other.name != standard.name):
        _add(other, found)
        found.problem = "a URL that readers disagree on"


def _is_login(authority: str) -> bool:
    """Return whether this is `git@host`, which every reader of such addresses splits alike."""
    user, _, host = authority.partition("@")
    return _LOGIN.issuperset(user) and _LOGIN.issuperset(host)


def _read_bare(text: str, found: _Collector) -> None:
    """Add the hosts of `host`, `host:port`, `host/path` or an address."""
    if (address := parse_address(text)) is not None:
        _add(Host(str(address), unwrap(address)), found, exact=True)
        return
    authority = _authority("//" + text)
    if "@" in authority:
        if not _is_login(authority):
            found.problem = "a user name before a host"
        for part in authority.split("@"):
            _add(_canonical(part.partition(":")[0]), found)
    if "\\" in text:
        found.problem = "a backslash in a host"
    _add(_canonical(authority.rpartition("@")[2]), found, exact=True)
    scheme, colon, rest = text.partition(":")
    if colon and scheme:
        _add(_canonical(_authority("//" + rest.lstrip("/\\"))), found)


def _authority(text: str) -> str:
    head, colon, tail = text.partition(":")
    rest = (tail if colon and _SCHEME.issuperset(head) else text).lstrip("/\\")
    for mark in "/\\?#":
        rest = rest.partition(mark)[0]
    return rest


def _host_by_standard(text: str) -> Host | None:
    """Return the host that a browser takes (WHATWG), or None."""
    scheme, colon, rest = text.partition(":")
    if text.startswith(("/", "\\")):
        text = "http:" + text
    elif colon and scheme.lower() not in _SPECIAL:
        text = "http:" + rest
    try:
        name = ada_url.URL(text).hostname
    except ValueError:
        return None
    return _host_named(name) if name else None


def _host_by_urllib(text: str) -> Host | None:
    try:
        name = urlsplit(text).hostname
    except ValueError:
        return None
    return _canonical(name) if name else None


def _canonical(authority: str) -> Host | None:
    """Return the host of `host` or `host:port` in any notation (0x7f.1, 2130706433), or None."""
    if not authority:
        return None
    if (bare := parse_address(authority)) is not None:
        return Host(str(bare), unwrap(bare))
    try:
        name = ada_url.URL("http://" + authority.partition("%")[0] if authority[0] == "[" else "http://" + authority)
        return _host_named(name.hostname)
    except ValueError:
        return None


def _host_named(name: str) -> Host:
    # "evil.com." is evil.com: the dot only says that the name is complete.
    name = name.rstrip(".").lower()
    address = parse_address(name)
    return Host(name) if address is None else Host(str(address), unwrap(address))


def canonical_host(text: str) -> Host | None:
    """Return the host that a policy or a connection names, or None where it is not a host."""
    return _canonical(text.strip())


def _add(host: Host | None, found: _Collector, *, exact: bool = False) -> None:
    if host is None or not host.name:
        return
    found.hosts[host] = None
    if exact:
        found.exact[host] = None
    for other in lookalikes(host):
        found.hosts[other] = None


def lookalikes(host: Host) -> list[Host]:
    """Return what a host's name imitates: a Latin name that looks alike, an address written in the name."""
    if host.addresses:
        return []
    out = []
    if "xn--" in host.name and (latin := skeleton(host.name)) != host.name:
        out.append(Host(latin))
    if (address := _address_in_name(host.name)) is not None:
        out.append(Host(host.name, unwrap(address)))
    return out


def skeleton(name: str) -> str:
    """Return the Latin name that a name in another script resembles."""
    labels = []
    for label in name.split("."):
        shown = label
        if label.startswith("xn--"):
            with contextlib.suppress(UnicodeError):
                shown = label[4:].encode("ascii").decode("punycode")
        labels.append(clean(shown.casefold()).translate(_LOOKALIKES))
    return ".".join(labels)


def _address_in_name(name: str) -> Address | None:
    """Return the address that DNS services read out of 10-0-0-1.sslip.io, 10.0.0.1.nip.io or a9fea9fe.nip.io."""
    parts = name.replace("-", ".").split(".")
    for i in range(len(parts) - 3):
        quad = parts[i : i + 4]
        if all(p.isdecimal() and len(p) <= 3 and int(p) < 256 for p in quad):
            return ipaddress.IPv4Address(".".join(str(int(p)) for p in quad))
    if not name.endswith((".nip.io", ".sslip.io", ".xip.io")):
        return None
    label = name.split(".")[-3]
    tail = label.rpartition("-")[2]
    if len(tail) == 8 and all(c in "0123456789abcdef" for c in tail):
        return ipaddress.IPv4Address(int(tail, 16))
    return parse_address(label.replace("-", ":"))


def _urls_inside(text: str) -> list[str]:
    # At most 64 of each kind: enough for prose, and a bound on the work.
    out: list[str] = []
    start = text.find("://", 1)
    while start >= 0 and len(out) < 64:
        begin = start
        while begin > 0 and text[begin - 1] in _SCHEME:
            begin -= 1
        end = start + 3
        while end < len(text) and text[end] not in _ENDS and text[end] not in "!),;":
            end += 1
        if begin > 0:
            out.append(text[begin:end])
        start = text.find("://", start + 3)
    return out + ["//" + part for part in text.split("=//")[1:65]]


def _read_schemes(text: str, found: _Collector) -> None:
    scheme, colon, rest = text.partition(":")
    exact = True
    while colon and scheme and scheme[0].isalpha() and _SCHEME.issuperset(scheme):
        if len(scheme) > 1 and not rest.partition("/")[0].isdecimal():
            found.schemes[scheme.lower()] = None
            if exact:
                found.exact_schemes[scheme.lower()] = None
        exact = False
        scheme, colon, rest = rest.lstrip("/\\").partition(":")
    # A plain path is what file: would open.
    if text.startswith(("/", "~", "\\", ".")) or text[1:3] in (":\\", ":/"):
        found.schemes["file"] = None
