"""Scans what a request carries beside MCP for secrets, on its way to where none may go. Pure.

Scanned are the path, the query, the decoded body, and every header that is not by its name a credential: those are
how a client logs in, so they may hold a secret of that very host.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from proxy.errors import WireError
from proxy.gate.result_masking import mask_after, said_after
from proxy.wire.content_coding import (
    BROKEN,
    Inflater,
    codings,
    decode_body,
    decode_text,
    inflater,
    odd_charsets,
    sniff_coding,
)
from proxy.wire.jsonrpc import parse_json
from proxy.wire.mcp import Headers, RequestHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.interfaces import Redactor
    from proxy.core.model import Context, Finding, Json, JsonObject, Redaction

# Words of which one in a header's name makes it a credential.
CREDENTIALS: Final = frozenset(
    ("auth", "authentication", "authorization", "apikey", "cookie", "credential", "key", "secret", "session")
) | {"signature", "token"}
MIRRORED: Final = "mcp-"  # headers of this prefix repeat what stands in an MCP message, which has rules of its own
KEPT: Final = 1024  # bytes of an upload that are held back, and characters that are scanned again with what follows
MAX_CLEAN: Final = 256
MAX_FINDINGS: Final = 100
PARSED: Final = 1 << 16
_WORD: Final = re.compile(r"[a-z]+")
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Carried:
    """What was found in a request, or why it could not be scanned."""

    redaction: Redaction
    findings: tuple[Finding, ...] = ()
    unread: str | None = None  # the reason code, where some of it could not be read

    @property
    def refused(self) -> bool:
        """Whether the request may not pass."""
        return self.redaction.action == "deny"

    @property
    def reason(self) -> str:
        return self.unread or "secret_found"


class OutboundScanner:
    """Scans requests, by what policy says of secrets where they go. Safe to share between threads."""

    def __init__(self, redactor: Redactor, limit: int) -> None:
        self._redactor = redactor
        self._limit = limit
        self._clean: dict[tuple[object, ...], None] = {}

    def look(self, context: Context, headers: Headers, body: bytes | None, before: str = "") -> Carried | None:
        """Return what policy objects to, if anything; `before` is what the same stream said just before."""
        # Without a body it is an MCP message, and only its head is scanned: the gate scans the message.
        redaction = secrets_rule(context)
        if redaction is None:
            return None
        fields = headers.whole() if isinstance(headers, RequestHead) else headers
        head = (context.target, tuple(fields), body is None)
        if not body and head in self._clean:
            return None
        value, unread = _head(context.target, headers, mcp=body is None), None
        try:
            value["body"] = _read(body, headers, self._limit) if body else ""
        except WireError as error:
            unread = error.reason
        _, found, _ = mask_after(self._redactor, before, value, redaction.detectors)
        if found or unread:
            return Carried(redaction, found[:MAX_FINDINGS], unread)
        # A clean head is remembered: a client sends the same one with every call.
        if not body:
            if len(self._clean) >= MAX_CLEAN:
                self._clean.clear()
            self._clean[head] = None
        return None

    def read(self, context: Context, headers: Headers, body: bytes) -> Json | None:
        """Return all that a request carries as one value, its host too; None where some of it cannot be read."""
        head = _head(context.target, headers, mcp=False)
        # The headers first: of very many names the last are remembered.
        value: JsonObject = {"headers": head["headers"], "host": context.server, **head}
        try:
            value["body"] = _read(body, headers, self._limit) if body else ""
        except WireError:
            return None
        return value

    def watch(self, context: Context, headers: Headers, limit: int) -> UploadWatch | None:
        """Return what scans a body that streams; None where no rule asks for that."""
        redaction = secrets_rule(context)
        return UploadWatch(self._redactor, redaction, headers, limit) if redaction is not None else None


class UploadWatch:
    """Scans one upload as it streams. Holds back what a secret may begin in, until it is whole."""

    def __init__(self, redactor: Redactor, redaction: Redaction, headers: Headers, limit: int) -> None:
        self._redactor = redactor
        self._redaction = redaction
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._inflaters: list[Inflater] = []
        self._unread: str | None = None
        try:
            self._inflaters = [inflater(coding, limit) for coding in reversed(_codings(headers))]
        except WireError as error:
            self._unread = error.reason
        self._tail = ""
        self._seen = 0
        self._held: deque[tuple[int, bytes]] = deque()
        self.found: tuple[Finding, ...] = ()

    @property
    def carried(self) -> Carried | None:
        """What there is to object to so far."""
        if self._unread is None and not self.found:
            return None
        return Carried(self._redaction, self.found, self._unread)

    def feed(self, chunk: bytes) -> bytes | None:
        """Take the next bytes; return those that may be sent now, or None where the upload is refused."""
        try:
            self._look(chunk)
        except WireError as error:
            self._unread = error.reason
        except BROKEN:
            self._unread = "encoding_mismatch"
        except Exception:  # noqa: BLE001  a layer's boundary: what cannot be scanned does not pass
            self._unread, self._redaction = "internal_error", replace(self._redaction, action="deny")
        if self.carried is not None and self._redaction.action == "deny":
            return None
        self._held.append((self._seen, chunk))
        settled: list[bytes] = []
        while self._held and self._held[0][0] <= self._seen - KEPT:
            settled.append(self._held.popleft()[1])
        return b"".join(settled)

    def close(self) -> bytes:
        """Return what was held back; the upload is whole."""
        rest = b"".join(chunk for _, chunk in self._held)
        self._held.clear()
        return rest

    def _look(self, chunk: bytes) -> None:
        if self._unread is not None:
            return
        for engine in self._inflaters:
            chunk = engine.feed(chunk)
        self._seen += len(chunk)
        # Without zero bytes, so that UTF-16 reads as ASCII; with the end of what came before, so that a secret cut
        # in two by a chunk's end is found.
        window = self._tail + self._decode(chunk.replace(b"\0", b""))
        _, found = self._redactor.mask({"body": window}, self._redaction.detectors)
        self.found = tuple(dict.fromkeys((*self.found, *found)))[:MAX_FINDINGS]
        self._tail = window[-KEPT:]


def secrets_rule(context: Context) -> Redaction | None:
    """Return what policy says of secrets where a request goes; None where they may go there."""
    if context.egress is None or not context.egress.redactions:
        return None
    return next((redaction for redaction in context.egress.redactions if "request" in redaction.on), None)


def is_credential(name: str) -> bool:
    """Return whether a header of this name is a credential."""
    return not CREDENTIALS.isdisjoint(_WORD.findall(name.lower()))


def last_words(before: str, body: bytes) -> str:
    """Return the end of what a stream has said, once `body` has followed `before`."""
    try:
        return said_after(before, parse_json(body) if len(body) <= PARSED else _text(body))
    except WireError:
        return said_after(before, _text(body))


def _head(target: str, headers: Headers, *, mcp: bool) -> JsonObject:
    path, _, query = target.partition("?")
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        if not is_credential(name) and not (mcp and name.lower().startswith(MIRRORED)):
            fields.setdefault(name.lower(), []).append(value)
    return {"path": path, "query": _form(query), "headers": fields}


def _read(body: bytes, headers: Headers, limit: int) -> Json:
    """Return a body as a value to scan. Raises WireError where it cannot be read."""
    body = decode_body(body, _codings(headers), limit)
    # A coding that nobody declared would hide the secret from us, and the server may undo it all the same.
    if (coding := sniff_coding(body)) is not None:
        try:
            body = decode_body(body, [coding], limit)
        except WireError as error:
            if error.reason != "encoding_mismatch":
                raise
    types = [value for name, value in headers if name.lower() == "content-type"]
    for charset in odd_charsets(types):
        if (text := decode_text(body, charset)) is None:
            raise WireError("odd_charset", f"charset {charset[:40]!r} cannot be read")
        body = text.encode("utf-8", "ignore")
    if any(_FORM in value.lower() for value in types):
        return _form(_text(body))
    try:
        return parse_json(body)
    except WireError:
        # Whatever else it is, or JSON with a key twice of which a parser would drop one: scanned as it stands.
        return _text(body)


def _codings(headers: Headers) -> Sequence[str]:
    return codings([value for name, value in headers if name.lower() == "content-encoding"])


def _form(text: str) -> dict[str, Any]:
    fields: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="ignore"):
        fields.setdefault(name, []).append(value)
    return fields


def _text(body: bytes) -> str:
    """Decode what may be text; without its zero bytes, UTF-16 reads as UTF-8."""
    return body.replace(b"\0", b"").decode("utf-8", "ignore")
