"""A whole HTTP request inside the body of another. Pure.

A server that answers without reading a body, or reads only some of it, takes the rest for its next request. Python's
`http.server` does so with every 404 and 501. So a request head anywhere in a body is read as that server would, and
what follows it is judged as the body of a request of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.core.model import frozen
from proxy.wire.body import NOT_MCP, NotMcp, ParsedBody, RefusedBody, could_be_json, is_call_in_query, read_body
from proxy.wire.json_sniff import has_mcp_words

if TYPE_CHECKING:
    from collections.abc import Iterator

# What ends a request line: white space of Latin-1, by which Python splits it, the version, and the line's end. A line
# that goes on after the version, as one of an access log does, is a request to no server.
LINE_END: Final = re.compile(
    rb"[\x09-\x0d\x1c-\x20\x85\xa0]HTTP/[0-9][0-9.]*+[\x09\x0b-\x0d\x1c-\x20\x85\xa0]*+(?:\n|\Z)", re.IGNORECASE
)
HEAD_END: Final = re.compile(rb"\n\r?\n")
# The line of HTTP/0.9 has no version.
_OLD_LINE: Final = re.compile(rb"(?:\A|(?<=[\r\n]))GET[\t ]++(\S*+)[\t ]*+\r?+(?:\n|\Z)")
MAX_TARGET: Final = 1 << 16
"""Bytes of a request line that servers read."""
_FIELD: Final = re.compile(rb"^([^:\r\n]{1,64})[ \t]*:[ \t]*([^\r\n]*)", re.MULTILINE)
_CHUNK_SIZE: Final = re.compile(rb"(?:\A|\r?\n)[0-9A-Fa-f]{1,16}[ \t]*(?:;[^\r\n]*)?\r?\n")
# What a client's WebSocket frame begins with: no text does.
_FRAME: Final = re.compile(rb"[\x00-\x08\x40-\x4a\x80-\x8f\xc0-\xcf][\x80-\xff]")
MAX_WORK: Final = 8
"""How many times the size of a body is read for the requests in it; what follows is then judged by its words."""


@frozen()
class HiddenRequest:
    """A request inside a body: the values of the headers that say how to read it, and all that follows its head."""

    content_types: tuple[str, ...]
    encodings: tuple[str, ...]
    chunked: bool
    framed: bool  # in frames that cannot be read here: a WebSocket's are masked, those of HTTP/2 hold compressed heads
    length: int | None
    head_bytes: int
    body: bytes


def could_hide(body: bytes) -> bool:
    """Return whether `body` may hold a request line. One look: most bodies hold none."""
    return b"HTTP/" in body or b"http/" in body


def has_request_line(body: bytes) -> bool:
    """Return whether some server may find a request line in `body`."""
    return could_hide(body) and LINE_END.search(body) is not None


def read_hidden(body: bytes, limit: int) -> ParsedBody:
    """Return the refusal of a body in which some server may find a request that carries an MCP message."""
    if b"?" in body and any(map(is_call_target, targets(body))):
        return _refusal()
    if not could_hide(body):
        return NOT_MCP
    work = MAX_WORK * len(body) + (1 << 20)
    for hidden in _requests(body):
        work -= hidden.head_bytes + (len(hidden.body) if could_be_json(hidden.body) else 0)
        if work < 0:
            words = has_mcp_words(hidden.body.replace(b"\0", b"").decode("utf-8", "replace"))
            return _refusal() if words else NOT_MCP
        if hidden.framed or any(not isinstance(_judge(form, hidden, limit), NotMcp) for form in _forms(hidden)):
            return _refusal()
    return NOT_MCP


def targets(body: bytes) -> Iterator[bytes]:
    """Return the targets of the requests whose lines stand in `body`, where they have a query."""
    yield from (line[1] for line in _OLD_LINE.finditer(body))
    last = 0
    for line in LINE_END.finditer(body) if could_hide(body) else ():
        before = body[max(last, line.start() - MAX_TARGET) : line.start()]
        yield from before.split()[-1:] if b"?" in before else ()
        last = line.start()


def is_call_target(target: bytes) -> bool:
    """Return whether the query of a request's target makes a call."""
    return b"?" in target and is_call_in_query(target.decode("latin-1"), with_body=True)


def _refusal() -> RefusedBody:
    return RefusedBody("hidden_request", "a request inside the body carries what may be a call")


def _judge(body: bytes, hidden: HiddenRequest, limit: int) -> ParsedBody:
    return read_body(body, content_types=hidden.content_types, encodings=hidden.encodings, limit=limit)


def _forms(hidden: HiddenRequest) -> Iterator[bytes]:
    """Return what servers may take for the body: all that follows, as much as the head says, or what is in chunks."""
    yield hidden.body
    if hidden.length is not None and hidden.length < len(hidden.body):
        yield hidden.body[: hidden.length]
    if hidden.chunked:
        yield _CHUNK_SIZE.sub(b"", hidden.body)


def _requests(body: bytes) -> Iterator[HiddenRequest]:
    for line in LINE_END.finditer(body):
        end = HEAD_END.search(body, line.end() - 1)
        if end is None:
            return  # neither this head nor any after it has an end
        yield _parse(body[line.start() : end.start() + 1], body[end.end() :])


def _parse(head: bytes, body: bytes) -> HiddenRequest:
    fields: dict[str, list[str]] = {}
    for field in _FIELD.finditer(head):
        fields.setdefault(field[1].decode("latin-1").strip().lower(), []).append(field[2].decode("latin-1").strip())
    lengths = [int(value) for value in fields.get("content-length", ()) if value.isascii() and value.isdigit()]
    return HiddenRequest(
        tuple(fields.get("content-type", ())),
        tuple(fields.get("content-encoding", ())),
        "transfer-encoding" in fields,
        (b"HTTP/2" in head[:8] and body.startswith(b"SM\r"))
        or ("upgrade" in fields and _FRAME.match(body) is not None),
        min(lengths) if lengths else None,
        len(head),
        body,
    )
