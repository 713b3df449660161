"""A strict reader of syslog messages, from the ABNF of RFC 5424 (section 6) and the framing of RFC 6587."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = r"[!-<>-\\^-~]{1,32}"  # PRINTUSASCII without `=`, space, `]` and `"`; the last is taken out below
HEADER = re.compile(
    r"<(?P<pri>\d{1,3})>(?P<version>[1-9]\d{0,2}) "
    r"(?P<time>-|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)) "
    r"(?P<host>-|[!-~]{1,255}) (?P<app>-|[!-~]{1,48}) (?P<proc>-|[!-~]{1,128}) (?P<msgid>-|[!-~]{1,32}) "
)
PARAM = re.compile(r' ([!-<>-\\^-~]{1,32})="((?:[^"\\\]]|\\["\\\]]|\\(?!["\\\]]))*)"')


@dataclass(frozen=True)
class Message:
    facility: int
    severity: int
    time: str
    host: str
    app: str
    proc: str
    msgid: str
    data: dict[str, dict[str, str]]
    text: str


def parse(line: str) -> Message:
    """Return a message. Raises ValueError."""
    found = HEADER.match(line)
    if found is None or int(found["pri"]) > 191 or found["version"] != "1":
        raise ValueError("no header of RFC 5424")
    data, end = _data(line, found.end())
    if end < len(line) and line[end] != " ":
        raise ValueError("no space before the text")
    names = (found["time"], found["host"], found["app"], found["proc"], found["msgid"])
    return Message(int(found["pri"]) // 8, int(found["pri"]) % 8, *names, data, line[end + 1 :])


def _data(line: str, at: int) -> tuple[dict[str, dict[str, str]], int]:
    if line[at : at + 1] == "-":
        return {}, at + 1
    found: dict[str, dict[str, str]] = {}
    while line[at : at + 1] == "[":
        name = re.compile(NAME).match(line, at + 1)
        if name is None or '"' in name[0] or name[0] in found:
            raise ValueError("no name of an element, or the same twice")
        at, params = name.end(), {}
        while (param := PARAM.match(line, at)) is not None:
            if param[1] in params or '"' in param[1]:
                raise ValueError(f"the parameter {param[1]} twice")
            params[param[1]] = re.sub(r'\\(["\\\]])', r"\1", param[2])
            at = param.end()
        if line[at : at + 1] != "]":
            raise ValueError(f"an element does not end at {at}")
        found[name[0]] = params
        at += 1
    if not found:
        raise ValueError("no structured data")
    return found, at


def unframe(stream: bytes) -> list[str]:
    """Return the messages of a stream by octet counting. Raises ValueError where it is not whole."""
    messages = []
    while stream:
        size = re.match(rb"([1-9]\d*) ", stream)
        if size is None or len(stream) < size.end() + int(size[1]):
            raise ValueError("no whole frame")
        messages.append(stream[size.end() : size.end() + int(size[1])].decode())
        stream = stream[size.end() + int(size[1]) :]
    return messages
