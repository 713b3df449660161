"""Reads the arguments of a system call as strace prints them. Pure, and never raises: what cannot be read is None."""

from __future__ import annotations

import re
from typing import NamedTuple

# Possessive quantifiers throughout: the traced program chooses the text, and must not make us backtrack.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|<[^<>]*+>|[\[({]|[\])}]|,|[^"<\[({\])},]++|.', re.DOTALL)
_FLAT = re.compile(r'(?:[^,"<]++|"(?:[^"\\]++|\\.)*+"|<[^<>]*+>|["<])++', re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_NAMED_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f", b"a": b"\a", b"b": b"\b"}
_STRING = re.compile(r'@?"((?:[^"\\]++|\\.)*+)"(\.\.\.)?', re.DOTALL)
_DESCRIPTOR = re.compile(r"(-?[0-9]{1,10}|AT_FDCWD)(?:<([^<>]*+)>(\(deleted\))?)?")
_INODE = re.compile(rb"(socket|pipe):\[([0-9]{1,20})\]")
_IOV = re.compile(r'iov_base=("(?:[^"\\]++|\\.)*+"(?:\.\.\.)?)', re.DOTALL)
_MESSAGE_NAME = re.compile(r"msg_name=(\{[^{}]*\})")
_FAMILY = re.compile(r"\{sa_family=(AF_[A-Z0-9]+|0x[0-9a-f]+)")
_PORT = re.compile(r"sin6?_port=htons\(([0-9]{1,5})\)")
_IPV4 = re.compile(r'sin_addr=inet_addr\("([0-9.]{1,15})"\)')
_IPV6 = re.compile(r'inet_pton\(AF_INET6, "([0-9a-fA-F:.]{2,45})"')
_UNIX = re.compile(r'sun_path=(@?)("(?:[^"\\]++|\\.)*+"(?:\.\.\.)?)', re.DOTALL)


class QuotedString(NamedTuple):
    """A string argument; `truncated` where strace printed its beginning only."""

    data: bytes
    truncated: bool


class Descriptor(NamedTuple):
    """A descriptor and what it refers to: a path, `socket:[1]`, `pipe:[2]`, `anon_inode:[…]`; None if unknown."""

    number: int | None  # None for the working directory
    path: bytes | None
    deleted: bool = False  # its file has no name any more, or never had one

    @property
    def inode(self) -> tuple[str, int] | None:
        """`("socket", inode)` or `("pipe", inode)`, for those two."""
        found = _INODE.fullmatch(self.path or b"")
        return (found[1].decode(), int(found[2])) if found else None


class Address(NamedTuple):
    """Where a socket connects or listens. `abstract`: the name of a unix socket that is no file."""

    family: str
    host: str | None = None
    port: int | None = None
    path: bytes | None = None
    abstract: bool = False


class SentMessage(NamedTuple):
    """One message of sendmsg or sendmmsg: its destination, if it has one, and its data."""

    to: Address | None
    parts: tuple[QuotedString, ...]


def split_arguments(text: str) -> list[str]:
    """Split arguments at commas, but not within quotes, brackets and paths."""
    # Most calls have no brackets, and then one expression does it.
    if "[" not in text and "{" not in text and "(" not in text and not text.startswith(","):
        return [part.strip() for part in _FLAT.findall(text)]
    return _split_nested(text)


def _split_nested(text: str) -> list[str]:
    found: list[str] = []
    start = depth = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "," and depth <= 0:
            found.append(text[start : token.start()].strip())
            start = token.end()
        elif mark in "[({":
            depth += 1
        elif mark in "])}":
            depth -= 1
    last = text[start:].strip()
    return [*found, last] if last or found else found


def unescape(text: str) -> bytes:
    data = text.encode("latin-1", "replace")
    return _ESCAPE.sub(_unescaped, data) if b"\\" in data else data


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code[0] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if len(code) == 3:
        return bytes([int(code[1:], 16)])
    return _NAMED_ESCAPES.get(code, code)


def quoted(argument: str) -> QuotedString | None:
    found = _STRING.fullmatch(argument)
    return QuotedString(unescape(found[1]), found[2] is not None) if found else None


def descriptor(argument: str) -> Descriptor | None:
    found = _DESCRIPTOR.fullmatch(argument)
    if found is None:
        return None
    number = None if found[1] == "AT_FDCWD" else int(found[1])
    return Descriptor(number, unescape(found[2]) if found[2] is not None else None, found[3] is not None)


def returned(value: int | None, printed: str | None) -> Descriptor | None:
    """Read the descriptor that a call returned, from `Syscall.value` and `Syscall.returned`."""
    return None if value is None or printed is None else descriptor(f"{value}{printed}")


def words(argument: str) -> tuple[QuotedString, ...] | None:
    """Read a list of strings such as execve's second argument. Where strace cut the list, the last is `truncated`."""
    if not (argument.startswith("[") and argument.endswith("]")):
        return None
    found: list[QuotedString] = []
    for part in split_arguments(argument[1:-1]):
        if (word := quoted(part)) is not None:
            found.append(word)
        elif part.startswith("...") and found:
            found.append(QuotedString(b"", True))
    return tuple(found)


def flags(argument: str) -> frozenset[str]:
    return frozenset(argument.partition("=")[2].split("|") if argument.startswith("flags=") else argument.split("|"))


def address(argument: str) -> Address | None:
    """Read a socket address; of families other than IPv4, IPv6 and unix only the family."""
    found = _FAMILY.match(argument)
    if found is None:
        return None
    family = found[1]
    if family == "AF_UNIX":
        name = _UNIX.search(argument)
        path = quoted(name[2]) if name else None
        return Address(family, path=path.data if path else None, abstract=bool(name and name[1]))
    port = _PORT.search(argument)
    host = _IPV4.search(argument) or _IPV6.search(argument)
    return Address(family, host[1] if host else None, int(port[1]) if port else None)


def buffers(argument: str) -> tuple[QuotedString, ...]:
    read = (quoted(found) for found in _IOV.findall(argument))
    return tuple(each for each in read if each is not None)


def message(argument: str) -> SentMessage:
    name = _MESSAGE_NAME.search(argument)
    return SentMessage(address(name[1]) if name else None, buffers(argument))


def messages(argument: str) -> tuple[SentMessage, ...]:
    if not (argument.startswith("[") and argument.endswith("]")):
        return ()
    return tuple(message(part) for part in split_arguments(argument[1:-1]))
