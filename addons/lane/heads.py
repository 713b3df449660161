"""The heads that the lane takes: a whitelist grammar for requests and responses. Pure.

What is not written in exactly this form is left to mitmproxy's layers, so the grammar need not know what else there is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD_BYTES = 16 << 10
"""A longer head is none of the plain ones."""
END = b"\r\n\r\n"

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rb"[!-~](?:[ -~]*[!-~])?"
_FIELDS = rb"(?:" + _NAME + rb": (?:" + _VALUE + rb")?\r\n)+\r\n"
_REQUEST = re.compile(rb"POST (?:https?://[!-~]+|/[!-~]*) HTTP/1\.1\r\n" + _FIELDS)
_RESPONSE = re.compile(rb"HTTP/1\.1 200 [ -~]*\r\n" + _FIELDS)
_LENGTH = re.compile(rb"\r\ncontent-length: (0|[1-9][0-9]{0,9})\r\n", re.IGNORECASE)
# A field of a request that says anything of framing, of the connection or of what is to happen beside an answer.
_NOT_PLAIN = re.compile(
    rb"\r\n(?:transfer-encoding|te|trailer|upgrade|expect|content-encoding|http2-settings|keep-alive"
    rb"|connection: (?!keep-alive\r)|proxy-connection: (?!keep-alive\r))",
    re.IGNORECASE,
)
_ANSWER_NOT_PLAIN = re.compile(rb"\r\n(?:trailer|upgrade|content-encoding|connection: (?!keep-alive\r))", re.IGNORECASE)
_CODING = re.compile(rb"\r\ntransfer-encoding: ", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: chunked\r\n", re.IGNORECASE)
_TYPE = re.compile(rb"\r\ncontent-type: ([a-z]+/[a-z.+-]+)(?:; ?charset=utf-8)?\r\n", re.IGNORECASE)
_ANY_LENGTH = re.compile(rb"\r\ncontent-length:", re.IGNORECASE)
_ANY_TYPE = re.compile(rb"\r\ncontent-type:", re.IGNORECASE)


class RequestKey(NamedTuple):
    """A request's head without the value of its Content-Length, and that value."""

    before: bytes
    after: bytes
    length: int


def request_key(head: bytes) -> RequestKey | None:
    """Split a head, with its empty line, at the length of its body; None where it has none that is plain."""
    found = _LENGTH.search(head)
    if found is None:
        return None
    at, end = found.span(1)
    return RequestKey(head[:at], head[end:], int(found[1]))


def is_plain_request(head: bytes) -> bool:
    """Return whether a request's head, with its empty line, is one that the lane takes."""
    return (
        len(head) <= HEAD_BYTES
        and _REQUEST.fullmatch(head) is not None
        and _NOT_PLAIN.search(head) is None
        and len(_ANY_LENGTH.findall(head)) == 1
    )


class ResponseHead(NamedTuple):
    """A response's head: where its body begins, its type in lower case, and its length; None where it has chunks."""

    size: int
    media_type: bytes
    length: int | None


def read_response(data: bytes) -> ResponseHead | None:
    """Return the head at the start of `data`; None where it is not whole, or not one that the lane takes."""
    end = data.find(END, 0, HEAD_BYTES)
    if end < 0:
        return None
    head = data[: end + len(END)]
    if _RESPONSE.fullmatch(head) is None or _ANSWER_NOT_PLAIN.search(head) is not None:
        return None
    kind = _TYPE.search(head)
    if kind is None or len(_ANY_TYPE.findall(head)) != 1:
        return None
    lengths = len(_ANY_LENGTH.findall(head))
    if _CODING.search(head) is not None:
        plain = lengths == 0 and len(_CODING.findall(head)) == 1 and _CHUNKED.search(head) is not None
        return ResponseHead(len(head), kind[1].lower(), None) if plain else None
    length = _LENGTH.search(head)
    return ResponseHead(len(head), kind[1].lower(), int(length[1])) if length is not None and lengths == 1 else None


def with_length(head: bytes, length: int) -> bytes:
    """Return a response's head with another Content-Length; in place of chunks it stands at the end."""
    found = _LENGTH.search(head)
    if found is not None:
        return b"%s%d%s" % (head[: found.start(1)], length, head[found.end(1) :])
    coding = _CHUNKED.search(head)
    assert coding is not None
    kept = head[: coding.start()] + head[coding.end() - 2 : -2]
    return b"%scontent-length: %d\r\n\r\n" % (kept, length)
