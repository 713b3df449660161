"""Content codings and charsets: every way in which servers may decode the bytes of a body.

Pure. Decoding is bounded, so that a small body cannot become a large one.
"""

from __future__ import annotations

import codecs
import re
import zlib
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import brotli
import zstandard

from proxy.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Charsets in which the bytes of ASCII text are themselves, and stand for nothing else. In GBK, Big5 and Shift_JIS a
# backslash may be half of another character: what is one string in UTF-8 is two there, with a member between them.
ASCII_COMPATIBLE = ("ascii", "utf-8", "latin", "iso8859-", "cp125", "koi8-", "euc")
# Unicode encodings that a server may tell apart by their zero bytes.
WIDE_CODECS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
NO_CODING = frozenset({"", "identity", "aws-chunked"})
# Python's codecs that are no charsets: their decoders warn, or have no lenient mode. aiohttp decodes with them.
NO_CHARSET = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
MAX_CHARSET_NAME = 40
MAX_CODINGS = 3
# So much of a body is decoded to see what it begins with.
START = 4096
# A member costs an engine, so a body of nothing but tiny members would cost minutes.
MAX_MEMBERS = 1000
# Each costs a call. Random bytes have one in 450, so no file within the body limit has so many by chance.
MAX_OVERLONG = 300_000
# The same for bytes that a charset has no character for.
MAX_BROKEN = 100_000
# Small steps bound what one of them can produce before the limit is checked: four bytes of zstd can stand for 128 KiB.
STEP = 256
SLICE = 1 << 20
PIECE = 1 << 16
_BIG_ENDIAN = {"utf-16": codecs.BOM_UTF16_BE, "utf-32": codecs.BOM_UTF32_BE}
_SURROGATES = bytes(range(0xD8, 0xE0))


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class Inflater:
    """Decodes one content coding, chunk by chunk, up to a number of bytes."""

    def __init__(self, limit: int, start: Callable[[int], _Decompressor]) -> None:
        self._start = start
        self._engine = start(limit)
        self._left = limit
        self._began = False

    @property
    def finished(self) -> bool:
        """Whether what was fed so far ends where a member ends."""
        return self._engine.eof or not self._began

    def feed(self, data: bytes) -> bytes:
        """Return what `data` decodes to.

        Raises one of BROKEN where it is not of this coding, WireError `body_too_large` past the limit,
        `encoding_mismatch` past MAX_MEMBERS.
        """
        out = bytearray()
        members = 0
        for start in range(0, len(data), STEP):
            piece = data[start : start + STEP]
            while piece:
                self._began = True
                # Concatenated members (gzip, zstd) are one body to Node's zlib: a call may stand in the second.
                if self._engine.eof:
                    self._engine = self._start(self._left)
                    members += 1
                    if members > MAX_MEMBERS:
                        raise WireError("encoding_mismatch", f"more than {MAX_MEMBERS} compressed members in one body")
                decoded = self._engine.decompress(piece)
                piece = self._engine.unused_data if self._engine.eof else b""
                out += decoded
                self._left -= len(decoded)
                if self._left < 0:
                    raise WireError("body_too_large", "the body decodes to more than the limit")
        return bytes(out)


class _Deflate:
    """`deflate` is zlib-wrapped by the standard and raw in the wild: the first two bytes tell."""

    def __init__(self, _limit: int) -> None:
        self._head = b""
        self._engine: _Decompressor | None = None

    @property
    def eof(self) -> bool:
        return self._engine is not None and self._engine.eof

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data if self._engine else b""

    def decompress(self, data: bytes) -> bytes:
        if self._engine is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            wrapped = self._head[0] & 0x0F == 8 and int.from_bytes(self._head[:2]) % 31 == 0
            self._engine = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
            data = self._head
        return self._engine.decompress(data)


class _Brotli:
    """Brotli can make gigabytes of one step, so its output is taken in slices."""

    unused_data = b""

    def __init__(self, limit: int) -> None:
        self._engine = brotli.Decompressor()
        self._limit = limit

    @property
    def eof(self) -> bool:
        return bool(self._engine.is_finished())

    def decompress(self, data: bytes) -> bytes:
        out = bytearray(self._engine.process(data, output_buffer_limit=SLICE))
        while len(out) <= self._limit and not self._engine.can_accept_more_data():
            out += self._engine.process(b"", output_buffer_limit=SLICE)
        return bytes(out)


CODINGS: dict[str, Callable[[int], _Decompressor]] = {
    **dict.fromkeys(("gzip", "x-gzip"), lambda _limit: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "deflate": _Deflate,
    "br": _Brotli,
    # The window is memory that the first bytes of a body ask for: 128 MiB at most, as `zstd --ultra` takes.
    "zstd": lambda _limit: zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(),
}
BROKEN = (ValueError, EOFError, zlib.error, brotli.error, zstandard.ZstdError)


def inflater(coding: str, limit: int) -> Inflater:
    """Return the decoder of `coding`, up to `limit` bytes. Raises WireError `unknown_encoding`."""
    try:
        return Inflater(limit, CODINGS[coding])
    except KeyError:
        raise WireError("unknown_encoding", f"content coding {coding!r} cannot be read") from None


CODING_MARKS = frozenset((b"\x1f", b"\x28", b"\x78"))


def sniff_coding(body: bytes) -> str | None:
    """Return the coding whose mark the first bytes of `body` are; brotli has none."""
    # One look at the first byte decides for all JSON, which begins with none of these.
    if body[:1] not in CODING_MARKS:
        return None
    if body.startswith(b"\x1f\x8b"):
        return "gzip"
    if body.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd"
    return "deflate" if body[:1] == b"\x78" and len(body) > 2 and int.from_bytes(body[:2]) % 31 == 0 else None


def decode_start(body: bytes, coding: str) -> bytes:
    """Return what the first bytes of `body` decode to; nothing where they do not."""
    try:
        return inflater(coding, 1 << 24).feed(body[:START])
    except (WireError, *BROKEN):
        return b""


_OVERLONG = re.compile(rb"[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f][\x80-\xbf]|\xf0[\x80-\x8f][\x80-\xbf]{2}")


def decode_overlong(body: bytes) -> bytes:
    """Return `body` without overlong UTF-8, which careless decoders take. Raises WireError past MAX_OVERLONG."""
    shortened, count = _OVERLONG.subn(_shortest, body, count=MAX_OVERLONG + 1)
    if count > MAX_OVERLONG:
        raise WireError("not_utf8", f"more than {MAX_OVERLONG} characters in more bytes than they need")
    return shortened


def _shortest(match: re.Match[bytes]) -> bytes:
    first, *rest = match[0]
    value = first & (0x1F if len(rest) == 1 else 0x0F if len(rest) == 2 else 0x07)
    for byte in rest:
        value = value << 6 | byte & 0x3F
    return chr(value).encode("utf-8", "replace")


def codings(headers: Sequence[str]) -> list[str]:
    """Return the content codings in the order they were applied, without the ones that do nothing."""
    named = (coding.strip().lower() for header in headers for coding in header.split(","))
    return [coding for coding in named if coding not in NO_CODING]


def decode_body(body: bytes, applied: Sequence[str], limit: int) -> bytes:
    """Decode `applied` codings, the last one first.

    Raises WireError: `unknown_encoding`, `encoding_mismatch` (the bytes are not of that coding), `body_too_large`,
    `stacked_encoding`.
    """
    if len(applied) > MAX_CODINGS:
        raise WireError("stacked_encoding", f"more than {MAX_CODINGS} content codings")
    for coding in reversed(applied):
        engine = inflater(coding, limit)
        try:
            body = engine.feed(body)
        except BROKEN as error:
            raise WireError("encoding_mismatch", f"the body is not {coding}: {error}") from error
        if not engine.finished:
            raise WireError("encoding_mismatch", f"the {coding} body is cut short")
    return body


_PLAIN_TYPE = re.compile(
    r"[^;\"()\\]*+(?:;\s*+(?:[a-z0-9_-]+\s*+=\s*+(?:\"[^\"\\;]*+\"|'[^'\\;]*+'|[^\s;\"()\\*%]*+)\s*+)?)*+",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"charset[^=;]*=", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_.:+-]+", re.IGNORECASE)


def odd_charsets(content_types: Sequence[str]) -> list[str]:
    """Return each declared charset in which ASCII text may be hidden; the whole type, where it is written oddly."""
    declared: dict[str, None] = {}
    for content_type in content_types:
        # Continuations, comments, escapes: Python's email parser (aiohttp's) undoes them, others do not.
        if not _PLAIN_TYPE.fullmatch(content_type) and _PARAMETER.search(_undone(content_type)):
            declared[content_type.lower()] = None
            continue
        for part in content_type.split(";")[1:]:
            name, _, value = part.partition("=")
            if name.strip().lower() == "charset":
                declared[value.strip().strip("\"'").lower()] = None
    return [charset for charset in declared if not (_codec(charset) or "").startswith(ASCII_COMPATIBLE)]


def _undone(content_type: str) -> str:
    """Return a header value without what its parsers drop: comments, quotes, escapes, percent-encoding."""
    text = unquote(re.sub(r"\([^()]*\)", "", content_type))
    return re.sub(r"[\s\"\\]", "", text)


def is_no_charset(charset: str) -> bool:
    """Return whether nobody means a charset by that name: a codec of Python's own, or what is no name at all."""
    return _codec(charset) in NO_CHARSET or not _NAME.fullmatch(charset)


def decode_text(body: bytes, charset: str) -> str | None:
    """Decode leniently; None for an unknown charset. Raises WireError `odd_charset` past MAX_BROKEN bytes in error."""
    name = _codec(charset)
    if name is None or name in NO_CHARSET:
        return None
    try:
        body[:1].decode(name, "replace")
    except (LookupError, ValueError):  # a codec between bytes, such as zlib
        return None
    try:
        return "".join(_decode_pieces(body, name))
    except (LookupError, ValueError) as error:
        raise WireError("odd_charset", f"charset {name} cannot be read") from error


def _decode_pieces(body: bytes, name: str) -> Iterator[str]:
    # In pieces, so that other threads get their turn and a hopeless body is given up early.
    mark = _BIG_ENDIAN.get(name)
    # Python decodes these in pieces only after a mark; unmarked ones are little-endian to it.
    name = f"{name}-le" if mark and not body.startswith(mark) else name
    decoder = codecs.getincrementaldecoder(name)("replace")
    broken = 0
    for start in range(0, len(body), PIECE):
        text = decoder.decode(body[start : start + PIECE], final=start + PIECE >= len(body))
        broken += text.count("\ufffd")
        if broken > MAX_BROKEN:
            raise WireError("odd_charset", f"more than {MAX_BROKEN} bytes of the body are no {name}")
        yield text


def wide_texts(body: bytes) -> Iterator[str]:
    """Return `body`, which is not UTF-8, decoded from each encoding that has zero bytes, leniently.

    Where the bytes make little sense in one of them, it is read without its zero bytes instead: ASCII stays itself.
    """
    views = [(codec, _broken_units(body, codec) <= MAX_BROKEN) for codec in WIDE_CODECS]
    yield from (body.decode(codec, "replace") for codec, sound in views if sound)
    if not all(sound for _, sound in views):
        yield body.replace(b"\0", b"").decode("utf-8", "replace")


def _broken_units(body: bytes, codec: str) -> int:
    """Count the units of `body` that are no character by themselves, or more."""
    size = 2 if "16" in codec else 4
    # Where the bytes of a unit stand in it, the most significant first; the last two may be half a surrogate pair.
    order = range(size - 1, -1, -1) if codec.endswith("le") else range(size)
    second = body[order[-2] :: size]
    broken = len(second) - len(second.translate(None, _SURROGATES))
    if size == 4:
        broken += len(body[order[0] :: 4].translate(None, b"\0"))
        broken += len(body[order[1] :: 4].translate(None, bytes(range(0x11))))
    return broken


def _codec(charset: str) -> str | None:
    # Long names are not looked up: Python would cache each of them for ever.
    if len(charset) > MAX_CHARSET_NAME:
        return None
    try:
        return codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
