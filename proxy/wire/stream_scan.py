"""Scan a body that streams for every form in which a server may find a call in it. Pure.

As it is, after its declared codings (`upload.py`), after a coding that nobody declared, in a request that it hides, and
in the messages of gRPC. Whatever is found, or cannot be read where it must be, stops the body where it stands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.errors import WireError
from proxy.wire.content_coding import BROKEN, Inflater, inflater, sniff_coding
from proxy.wire.hidden_request import HEAD_END, LINE_END, is_call_target, targets
from proxy.wire.json_sniff import could_be_json, could_be_lenient, is_undecided
from proxy.wire.upload import HEAD, OVERLAP, UploadScanner

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_OPEN: Final = 8
"""Requests hidden in one body that are read at a time; a body with more of them is refused."""
MARK_BYTES: Final = 4
PREFIX_BYTES: Final = 5
LEAD_BYTES: Final = 32
MAX_HEAD: Final = 1 << 16
"""Bytes of a request hidden in a body that are kept while it goes on: servers read no longer lines."""
_CODED: Final = re.compile(rb"\n(?:transfer|content)-encoding[ \t]*+:", re.IGNORECASE)
_OPENING: Final = re.compile(rb"[{\[]")
_STRUCTURED: Final = ("json", "yaml", "urlencoded")
_ESCAPES: Final = re.compile(rb"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})")
_LOWER: Final = bytes(range(256)).lower()
_DROPPED: Final = bytes(range(0x21)) + b"\x7f\\\"'`_-"
# Those that make a server act. After a mark of structure, as a value or a key has it: in prose and in paths they stand
# after other characters.
_ACTING: Final = rb"(?:tools/call|resources/read|prompts/get|completion/complete|sampling/createmessage|tasks/[a-z]+)"
_METHODS: Final = re.compile(rb"[:,=\[{]" + _ACTING)
_FIELD: Final = re.compile(rb"name=method.{0,300}?" + _ACTING, re.DOTALL)


class StreamScanner:
    """Decides for each chunk of one body whether it may be forwarded."""

    def __init__(self, content_types: Sequence[str], encodings: Sequence[str], limit: int) -> None:
        self._plain = UploadScanner(content_types, encodings, limit)
        self._hidden = _HiddenRequests(limit)
        self._unsaid = _UnsaidCoding(limit)
        self._words = _LenientWords(content_types)
        self._messages = _GrpcMessages(limit) if any(map(is_grpc, content_types)) else None
        self._refused = False

    def passes(self, chunk: bytes) -> bool:
        """Return whether `chunk` may be forwarded."""
        if self._refused:
            return False
        scans = (self._plain, self._hidden, self._unsaid, self._words, self._messages)
        self._refused = not all(scan.passes(chunk) for scan in scans if scan is not None)
        return not self._refused

    @property
    def is_between_messages(self) -> bool:
        """Whether what was sent so far ends where a message of gRPC ends: its receiver may answer it now."""
        return self._messages is not None and self._messages.is_between


def is_grpc(content_type: str) -> bool:
    """Return whether a content type is gRPC's over HTTP/2; grpc-web is another protocol."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/grpc" or media_type.startswith("application/grpc+")


class _Body:
    """The body of something inside the stream; done with once its start shows that it is no message."""

    def __init__(self, limit: int, *, only_json: bool = False) -> None:
        self._scanner = UploadScanner((), (), limit, only_json=only_json)
        self._head = b""

    def passes(self, chunk: bytes) -> bool:
        if len(self._head) < HEAD:
            self._head += chunk[: HEAD - len(self._head)]
        return self._scanner.passes(chunk)

    @property
    def is_over(self) -> bool:
        return len(self._head) >= OVERLAP and not (could_be_json(self._head) or is_undecided(self._head))


class _HiddenRequests:
    """Requests inside the body, for a server that leaves some of it unread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = b""
        self._in_head = False
        self._unreadable = False
        self._bodies: list[_Body] = []

    def passes(self, chunk: bytes) -> bool:
        clean = all(body.passes(chunk) for body in self._bodies)
        window, at = self._tail + chunk, 0
        if b"\n" in chunk and b"?" in window and any(map(is_call_target, targets(window))):
            return False
        while (start := self._next_body(window, at)) is not None:
            at = start
            body = _Body(self._limit)
            clean = body.passes(window[at:]) and clean and not self._unreadable
            self._bodies.append(body)
            if len(self._bodies) > MAX_OPEN:
                self._bodies = [each for each in self._bodies if not each.is_over]
                clean = clean and len(self._bodies) <= MAX_OPEN
            if not clean:
                break
        # All of a line that goes on, and of a head, whose fields say how to read what follows.
        line = window.rfind(b"\n") + 1 if not self._in_head else 0
        self._tail = window[max(at, min(line, len(window) - OVERLAP), len(window) - MAX_HEAD) :]
        return clean

    def _next_body(self, window: bytes, at: int) -> int | None:
        """Return where the next hidden request's body begins; None where that has not come yet."""
        if not self._in_head:
            line = LINE_END.search(window, at)
            if line is None:
                return None
            self._in_head, at = True, line.end() - 1
        end = HEAD_END.search(window, at)
        self._in_head = end is None
        if end is None:
            return None
        # What is cut into chunks or compressed there cannot be read as it streams.
        self._unreadable = self._unreadable or _CODED.search(window, at, end.end()) is not None
        return end.end()


class _LenientWords:
    """Methods of MCP in any quoting or none, for parsers that are more lenient than those `UploadScanner` knows."""

    def __init__(self, content_types: Sequence[str]) -> None:
        types = " ".join(content_types).lower()
        self._is_form = "multipart/" in types
        self._is_text = any(word in types for word in _STRUCTURED)
        self._head = b""
        self._tail = b""

    def passes(self, chunk: bytes) -> bool:
        if len(self._head) < HEAD:
            self._head += chunk[: HEAD - len(self._head)]
        window, self._tail = self._tail + chunk, (self._tail + chunk)[-OVERLAP:]
        if self._is_form:
            return not (b"name" in window.lower() and _FIELD.search(_bare(window)))
        if self._is_text or could_be_json(self._head) or is_undecided(self._head) or could_be_lenient(self._head):
            return _METHODS.search(_bare(window)) is None
        return True


def _bare(data: bytes) -> bytes:
    """Return a text in lower case without its escapes, quotes, blanks and what else lenient parsers drop."""
    if b"\\" in data or b"%" in data:
        data = _ESCAPES.sub(_unescape, data)
    return data.translate(_LOWER, _DROPPED)


def _unescape(found: re.Match[bytes]) -> bytes:
    code = int(found[1] or found[2] or found[3], 16)
    return bytes([code]) if code < 0x80 else b"?"


class _UnsaidCoding:
    """A compressed body that does not say so, for a server that knows it by its first bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start: bytes | None = b""
        self._engine: Inflater | None = None
        self._body = _Body(limit)

    def passes(self, chunk: bytes) -> bool:
        if self._start is not None:
            self._start += chunk
            if len(self._start) < MARK_BYTES:
                return True
            chunk, self._start = self._start, None
            coding = sniff_coding(chunk)
            self._engine = inflater(coding, self._limit) if coding is not None else None
        if self._engine is None:
            return True
        try:
            clean = self._body.passes(self._engine.feed(chunk))
        except BROKEN:
            clean, self._engine = True, None  # it only began like one
        except WireError:
            return False
        if self._body.is_over:
            self._engine = None  # most archives: what is in them is no message, and need not be unpacked
        return clean


class _GrpcMessages:
    """The messages of gRPC: each in a frame with a flag and its length before it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._prefix = b""
        self._left = 0
        self._body = _Body(limit, only_json=True)
        self._unsaid = _UnsaidCoding(limit)
        self._lead: bytes | None = b""

    @property
    def is_between(self) -> bool:
        return not self._left and not self._prefix

    def passes(self, chunk: bytes) -> bool:
        clean = True
        while chunk and clean:
            if not self._left:
                chunk = self._take_prefix(chunk)
                continue
            piece, chunk = chunk[: self._left], chunk[self._left :]
            self._left -= len(piece)
            clean = self._unsaid.passes(piece) and self._body.passes(self._without_lead(piece))
        return clean

    def _without_lead(self, piece: bytes) -> bytes:
        """Return what follows the few bytes that protobuf writes before a text, which may be all of a message."""
        if self._lead is None:
            return piece
        self._lead += piece
        if self._left and len(self._lead) < LEAD_BYTES:
            return b""
        lead, self._lead = self._lead, None
        start = _OPENING.search(lead, 0, LEAD_BYTES)
        return lead[start.start() :] if start is not None else lead

    def _take_prefix(self, chunk: bytes) -> bytes:
        wanted = PREFIX_BYTES - len(self._prefix)
        self._prefix, chunk = self._prefix + chunk[:wanted], chunk[wanted:]
        if len(self._prefix) == PREFIX_BYTES:
            self._left = int.from_bytes(self._prefix[1:])
            self._prefix = b""
            self._lead = b""
            self._body, self._unsaid = _Body(self._limit, only_json=True), _UnsaidCoding(self._limit)
        return chunk
