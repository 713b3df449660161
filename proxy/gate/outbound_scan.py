"""Scans what a request carries beside MCP, on its way to where policy does not let everything go.

Scanned are the path, the query, the decoded body, and the headers. Those that are by their name credentials are how a
client logs in, so they may hold a secret of that very host: they are scanned only where a rule names them.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from proxy.errors import WireError
from proxy.gate.carried_checks import Field, check_fields, fields_of, finding, has_login
from proxy.gate.carried_plan import CarriedPlan, parts_of, plan_for
from proxy.gate.known_placeholders import without
from proxy.gate.result_masking import mask_after, said_after
from proxy.gate.spellings import joined_segments, may_be_respelt, other_spellings
from proxy.policy.ip_address import parse_address
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
    from collections.abc import Callable, Iterable, Sequence

    from proxy.core.interfaces import Redactor
    from proxy.core.model import Context, Finding, Json, JsonObject, Redaction
    from proxy.gate.credential_owners import CredentialOwners
    from proxy.wire.client_stream import ClientStream

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
_SECRET_PIECE: Final = re.compile(r"[A-Za-z0-9_+/=-]{6,}")
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
        if self.unread is not None:
            return self.unread
        # A finding without a fingerprint is no secret: it is where data goes, or what it looks like.
        return "secret_found" if any(found.fingerprint for found in self.findings) else "content_denied"


@dataclass(frozen=True, slots=True)
class _Request:
    """A request as it is read: its value, where it goes, its texts, and what its stream said before."""

    value: JsonObject
    host: str
    fields: list[Field]
    before: str
    pieces: str


class OutboundScanner:
    """Scans requests, by what policy says of secrets where they go. Safe to share between threads."""

    def __init__(
        self,
        redactor: Redactor,
        limit: int,
        owners: CredentialOwners | None = None,
        placeholders: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._redactor = redactor
        self._placeholders = placeholders  # which are no credentials, and open nothing
        self._limit = limit
        self._owners = owners
        self._clean: dict[tuple[object, ...], tuple[Redaction, ...]] = {}
        self._plans: dict[tuple[Redaction, ...], CarriedPlan] = {}

    def look(
        self, context: Context, headers: Headers, body: bytes | None, before: str = "", pieces: str = ""
    ) -> Carried | None:
        """Return what policy objects to, if anything; `before` is what the same stream said just before.

        `pieces` are the words of it that a secret may be put together from.
        """
        # Without a body it is an MCP message, and only its head is scanned: the gate scans the message.
        rules = request_rules(context)
        if not rules:
            return None
        fields = headers.whole() if isinstance(headers, RequestHead) else headers
        head = (context.server, context.target, tuple(fields), body is None)
        # A clean head is remembered: a client sends the same one with every call. By the rules themselves, since
        # another policy has other ones.
        if not body and self._clean.get(head) == rules:
            return None
        plan = self._plan(rules)
        value, unread = _head(context.target, headers, mcp=body is None), None
        if not plan.with_credentials:
            del value["credentials"]
        try:
            value["body"] = _read(body, headers, self._limit) if body else ""
        except WireError as error:
            unread = error.reason
        value = without(value, self._placeholders)
        carried = self._judge(plan, value, _host(context.server), before, pieces)
        if unread is not None and (carried is None or not carried.refused):
            return Carried(plan.strictest(), carried.findings if carried else (), unread)
        if carried is None and not body:
            self._remember(head, rules)
        return carried

    def _judge(self, plan: CarriedPlan, value: JsonObject, host: str, before: str, pieces: str) -> Carried | None:
        """Return the strictest rule that a request breaks. Each pass is made only while none denies it yet."""
        request = _Request(value, host, [*fields_of(value)], before, pieces)
        findings: list[Finding] = []
        worst: Carried | None = None
        for look in (self._find_plainly, self._find_checked, self._find_respelt, self._find_moved):
            more = [*look(plan, request)]
            findings += more
            if more and (broken := plan.broken(findings, host)) is not None:
                worst = Carried(broken[0], broken[1][:MAX_FINDINGS])
                if worst.refused:
                    return worst
        return worst

    def _find_plainly(self, plan: CarriedPlan, request: _Request) -> Iterable[Finding]:
        return mask_after(self._redactor, request.before, request.value, plan.detectors)[1] if plan.detectors else ()

    def _find_checked(self, plan: CarriedPlan, request: _Request) -> Iterable[Finding]:
        yield from check_fields(request.fields, request.value["path"], plan.checks)
        if "basic_login" in plan.checks and has_login(request.value["credentials"]):
            yield finding("basic_login", "credentials")

    def _find_respelt(self, plan: CarriedPlan, request: _Request) -> Iterable[Finding]:
        """Find what is written in pieces, backwards or in rare escapes, or was sent in pieces."""
        found: dict[str, list[str]] = {}
        if may_be_respelt("\n".join([field.text for field in request.fields])):
            for field in request.fields:
                found.setdefault(field.part, []).extend(other_spellings(field.text))
        if joined := joined_segments(request.value["path"]):
            found.setdefault("url", []).append(joined)
        if request.pieces:
            found.setdefault("body", []).append(request.pieces + words_of(request.value["body"]))
        # Digits backwards are another number: a personal number is looked for as it is written.
        detectors = [name for name in plan.detectors if not name.startswith("pii")]
        if not any(found.values()) or not detectors:
            return ()
        # A string for each, so that no two of them are read as one.
        apart: JsonObject = {part: {str(i): text for i, text in enumerate(texts)} for part, texts in found.items()}
        return self._redactor.mask(apart, detectors)[1]

    def _find_moved(self, plan: CarriedPlan, request: _Request) -> Iterable[Finding]:
        """Find credentials of another site; those of this request are this site's from now on."""
        if "moved_credential" not in plan.checks or self._owners is None or not _is_site(request.host):
            return
        for place in self._owners.moved(request.host, ((field.path, field.text) for field in request.fields)):
            yield finding("moved_credential", place)
            return
        if not self._owners.learn(request.host, request.value["credentials"]):
            yield finding("moved_credential", "credentials")

    def _plan(self, rules: tuple[Redaction, ...]) -> CarriedPlan:
        if (known := self._plans.get(rules)) is None:
            if len(self._plans) >= MAX_CLEAN:
                self._plans.clear()
            known = self._plans[rules] = plan_for(rules)
        return known

    def _remember(self, head: tuple[object, ...], rules: tuple[Redaction, ...]) -> None:
        if len(self._clean) >= MAX_CLEAN:
            self._clean.clear()
        self._clean[head] = rules

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
        rules = [rule for rule in request_rules(context) if "body" in parts_of(rule)]
        denying = [rule for rule in rules if rule.action == "deny"]
        plan = plan_for(tuple(denying or rules)) if rules else None
        if plan is None or not plan.detectors:
            return None
        merged = replace(plan.strictest(), detectors=plan.detectors)
        return UploadWatch(self._redactor, merged, headers, limit)


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


def request_rules(context: Context) -> tuple[Redaction, ...]:
    """Return what policy says of what a request carries; the same object for the same decision."""
    # Decisions on destinations have no other redactions than these.
    return () if context.egress is None else context.egress.redactions


def is_credential(name: str) -> bool:
    """Return whether a header of this name is a credential."""
    return not CREDENTIALS.isdisjoint(_WORD.findall(name.lower()))


def last_words(before: str, body: bytes) -> str:
    """Return the end of what a stream has said, once `body` has followed `before`."""
    return said_after(before, _value_of(body))


def remember(stream: ClientStream, body: bytes) -> None:
    """Keep the end of what a stream has said: a secret may be sent in several messages, a part of it in each."""
    value = _value_of(body)
    stream.said = said_after(stream.said, value)
    stream.pieces = (stream.pieces + words_of(value))[-KEPT:]


def words_of(value: Any) -> str:
    """Return the words of a message that may be pieces of a secret, without what stands between them."""
    text = value if isinstance(value, str) else said_after("", value)
    return "".join(word for word in _SECRET_PIECE.findall(text[-KEPT:]) if _has_digits(word))


def _has_digits(word: str) -> bool:
    return any(c.isdigit() for c in word) or (word.lower() != word != word.upper())


def _value_of(body: bytes) -> Any:
    try:
        return parse_json(body) if len(body) <= PARSED else _text(body)
    except WireError:
        return _text(body)


def _host(server: str) -> str:
    host, colon, port = server.rpartition(":")
    return host if colon and port.isdigit() else server


def _is_site(host: str) -> bool:
    """Return whether a host may be a stranger's: not an address, and not a name of the machine's own network."""
    return "." in host and parse_address(host) is None


def _head(target: str, headers: Headers, *, mcp: bool) -> JsonObject:
    path, _, query = target.partition("?")
    fields: dict[str, list[str]] = {}
    credentials: dict[str, list[str]] = {}
    for name, value in headers:
        if is_credential(name):
            credentials.setdefault(name.lower(), []).append(value)
        elif not (mcp and name.lower().startswith(MIRRORED)):
            fields.setdefault(name.lower(), []).append(value)
    return {"path": path, "query": _form(query), "headers": fields, "credentials": credentials}


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
