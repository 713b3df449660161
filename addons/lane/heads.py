"""The heads that the lane takes: a whitelist grammar for requests and responses. Pure.

What is not written in exactly this form is left to mitmproxy's layers, so the grammar need not know what else there is.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

HEAD_BYTES = 16 << 10
"""A longer head is none of the plain ones."""
END = b"\r\n\r\n"

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rb"[!-~](?:[ -~]*[!-~])?"
_FIELDS = rb"(?:" + _NAME + rb": (?:" + _VALUE + rb")?\r\n)+\r\n"
_REQUEST = re.compile(rb"POST (?:https?://[!-~]+|/[!-~]*) HTTP/1\.1\r\n" + _FIELDS)
# The layers write the reason without blanks around it.
_RESPONSE = re.compile(rb"HTTP/1\.1 200 (?:" + _VALUE + rb")?\r\n" + _FIELDS)
# The fields whose values may differ from call to call. Nothing that was judged depends on these values, except for what
# the gate reads anew for each call: who sends, where to, and how a body is framed stand elsewhere.
_VARYING = re.compile(
    rb"(\r\n(?:content-length|mcp-[a-z0-9-]+|traceparent|tracestate|baggage|b3|sentry-trace"
    rb"|x-(?:request|correlation|amzn-trace)-id|x-b3-[a-z]+|x-datadog-[a-z-]+|request-id|last-event-id"
    rb"|idempotency-key): )([!-~]+(?: [!-~]+)*)(?=\r\n)",
    re.IGNORECASE,
)
_LENGTH_NAME = b"\r\ncontent-length: "
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,9}")
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
    """A request's head taken apart: what is the same from call to call, and the values that may differ."""

    fixed: tuple[bytes, ...]
    """All text around the values, the names of their fields included."""
    values: tuple[bytes, ...]
    """Of the fields in `names`, in that order."""
    length: int
    """Of the body."""

    @property
    def names(self) -> tuple[bytes, ...]:
        """The names of the fields whose values may differ, in lower case, without Content-Length."""
        spelt = self.fixed[len(self.values) + 2 :]
        return tuple(name for each in spelt if (name := each[2:-2].lower()) != b"content-length")


def request_key(head: bytes) -> RequestKey | None:
    """Take a head with its empty line apart; None where it has not one length that is plain."""
    parts = _VARYING.split(head)
    names, values = parts[1::3], parts[2::3]
    lengths = [at for at, name in enumerate(names) if len(name) == len(_LENGTH_NAME) and name.lower() == _LENGTH_NAME]
    if len(lengths) != 1 or _NUMBER.fullmatch(length := values.pop(lengths[0])) is None:
        return None
    return RequestKey((*parts[::3], *names), tuple(values), int(length))


class HeadTemplate(NamedTuple):
    """A head that is sent again and again, with other values and another length."""

    texts: tuple[bytes, ...]
    order: tuple[int, ...]
    """Which of the values stands after each text but the last; -1 is the length."""

    def fill(self, values: tuple[bytes, ...], length: int) -> bytes:
        """Return the head with these values."""
        parts: list[bytes] = []
        for text, at in zip(self.texts, self.order, strict=False):
            parts += (text, values[at] if at >= 0 else b"%d" % length)
        return b"".join((*parts, self.texts[-1]))


def head_template(head: bytes, names: tuple[bytes, ...]) -> HeadTemplate | None:
    """Return how to write a head anew; None where it has not one plain length and these fields, each once."""
    key = request_key(head)
    if key is None or sorted(key.names) != sorted(names) or len({*names}) != len(names):
        return None
    parts = _VARYING.split(head)
    order = tuple(-1 if name.lower() == _LENGTH_NAME else names.index(name[2:-2].lower()) for name in parts[1::3])
    texts = tuple(text + name for text, name in zip(parts[::3], (*parts[1::3], b""), strict=True))
    return HeadTemplate(texts, order)


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
    return _read_response(data[: end + len(END)]) if end >= 0 else None


# A server sends the same head again and again.
@functools.lru_cache(maxsize=256)
def _read_response(head: bytes) -> ResponseHead | None:
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
