"""Reads an answer as it arrives, and writes one anew: JSON with its length or in chunks, or an event stream. Pure."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from addons.lane.chunks import ChunkReader
from addons.lane.heads import END, HEAD_BYTES, ResponseHead, read_response, with_length

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON_TYPE = b"application/json"
EVENT_STREAM = b"text/event-stream"
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")


class Reading(Enum):
    """What is known of an answer so far."""

    MORE = auto()
    """It can still be one for the lane."""
    ODD = auto()
    """It is one for the layers."""
    STREAM = auto()
    """An event stream begins behind its head."""
    WHOLE = auto()
    """Nothing is missing of it, and nothing came behind it."""


class AnswerSoFar(NamedTuple):
    """What has come of an answer; its head and body where these are known."""

    reading: Reading
    head: ResponseHead | None = None
    body: bytes = b""


_MORE, _ODD = AnswerSoFar(Reading.MORE), AnswerSoFar(Reading.ODD)


def read_answer(data: bytes, largest: int) -> AnswerSoFar:
    """Read what has come of an answer; a body past the `largest` size is one for the layers."""
    head = read_response(data)
    if head is None:
        return _MORE if END not in data and len(data) < HEAD_BYTES and not _BARE_LINE_FEED.search(data) else _ODD
    if head.length is None:
        if head.media_type == EVENT_STREAM:
            return AnswerSoFar(Reading.STREAM, head)
        return _read_chunks(data, head, largest) if head.media_type == JSON_TYPE else _ODD
    end = head.size + head.length
    if head.media_type != JSON_TYPE or len(data) > end or not 0 < head.length <= largest:
        return _ODD
    return AnswerSoFar(Reading.WHOLE, head, data[head.size :]) if len(data) == end else _MORE


def _read_chunks(data: bytes, head: ResponseHead, largest: int) -> AnswerSoFar:
    reader = ChunkReader()
    body = reader.feed(data[head.size :])
    if reader.broken or len(body) > largest:
        return _ODD
    if not reader.ended:
        return _MORE
    return AnswerSoFar(Reading.WHOLE, head, body) if body and not reader.surplus else _ODD


def write_answer(received: bytes, answer: AnswerSoFar, payloads: Sequence[bytes] | None) -> bytes:
    """Return a whole answer as it is passed on; with `payloads` in place of its body, where there are some."""
    head, body = answer.head, answer.body
    assert head is not None
    if payloads is not None:
        body = payloads[0] if len(payloads) == 1 else b"[" + b",".join(payloads) + b"]"
        return with_length(received[: head.size], len(body)) + body
    if head.length is None:
        return b"%s%x\r\n%s\r\n0\r\n\r\n" % (received[: head.size], len(body), body)
    return received
