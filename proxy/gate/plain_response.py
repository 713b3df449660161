"""What becomes of answers that are not MCP: pages, API answers and agent cards, as far as policy asks for a look.

An answer is held until it is whole, up to `HELD` bytes. What is larger, and what streams by its nature, is examined as
it passes; there, what would be stripped ends the answer, because nothing can be taken back.
"""

from __future__ import annotations

import codecs
import json
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.model import Context, Denial
from proxy.errors import WireError
from proxy.gate.incoming import REASON
from proxy.gate.refusal import withheld
from proxy.injection.content import PageContent, is_text, read_page
from proxy.wire.a2a import card_path
from proxy.wire.content_coding import Inflater, codings, decode_body, decode_text, inflater, odd_charsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.gate.agent_cards import AgentCards
    from proxy.gate.incoming import Incoming

log = structlog.get_logger("interlock.gate")

HELD: Final = 4 << 20
KEPT: Final = 4096
"""Bytes of what passed that are examined again with what follows, and of a held answer that wait for it."""
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_STREAMS: Final = ("text/event-stream", "application/x-ndjson", "application/jsonl", "application/stream+json")


class PlainResponses:
    """Examines answers to requests that are not MCP."""

    def __init__(self, incoming: Incoming, cards: AgentCards, limit: int) -> None:
        self._incoming = incoming
        self._cards = cards
        self._limit = limit

    def watch(self, context: Context, content_types: Sequence[str], encodings: Sequence[str]) -> PageWatch | None:
        """Return what examines an answer; None where nothing asks for it."""
        media_type = content_types[0].partition(";")[0].strip().lower() if content_types else ""
        asked = self._incoming.asks("pages", context) or self._incoming.asks("cards", context)
        if not (asked and is_text(media_type)) and not self._cards.takes(context):
            return None
        return PageWatch(self, context, media_type, (content_types, encodings), self._limit)

    def take(self, watch: PageWatch, body: bytes) -> bytes | Denial | None:
        """Return what may pass of a whole answer: None as it is, or why it may not. Never raises."""
        context = watch.context
        try:
            data = watch.decoded(body)
        except Exception as error:  # noqa: BLE001  what cannot be read is withheld where a rule may withhold
            log.warning("an answer cannot be read", server=context.server, error=str(error))
            return self._unreadable(context)
        if (card := self._card(context, data, watch.media_type)) is not None:
            return card if isinstance(card, Denial) else None if card is data else card
        screened = self._incoming.screen_page(context, lambda: read_page(data, watch.media_type), data)
        if screened.withheld is not None:
            return withheld(REASON, "GET", None, screened.withheld)
        if screened.value is data:
            return None
        left = screened.value
        return left if isinstance(left, bytes) else json.dumps(left, ensure_ascii=False).encode()

    def _card(self, context: Context, data: bytes, media_type: str) -> bytes | Denial | None:
        if card_path(context.target) is None and "json" not in media_type:
            return None
        return self._cards.take_page(context, data)

    def _unreadable(self, context: Context) -> Denial | None:
        strict = next((each for each in self.strict(context)), None)
        needed = strict is not None or self._cards.is_strict(context)
        return withheld("unreadable_response", "GET", None, strict) if needed else None

    def strict(self, context: Context) -> list[str]:
        """Return the rules by which an answer may be changed or withheld."""
        asked = (*self._incoming.asks("pages", context), *self._incoming.asks("cards", context))
        return [each.rule for each in asked if each.action != "flag" and not each.shadow]

    def passes(self, context: Context, text: bytes) -> bool:
        """Return whether a piece of an answer that streams may pass."""
        strict = bool(self.strict(context))
        screened = self._incoming.screen_page(context, lambda: PageContent(text, "text/plain"), text)
        return screened.withheld is None and (screened.value is text or not strict)


class PageWatch:
    """Examines one answer, whole or as it streams."""

    def __init__(
        self,
        pages: PlainResponses,
        context: Context,
        media_type: str,
        headers: tuple[Sequence[str], Sequence[str]],
        limit: int,
    ) -> None:
        self._pages = pages
        self.context = context
        self.media_type = media_type
        self._content_types, self._encodings = headers
        self._limit = limit
        self.streams = media_type in _STREAMS
        """Whether nobody waits for its end."""
        self._inflaters: list[Inflater] | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._tail = b""
        self._seen = 0
        self._held: deque[tuple[int, bytes]] = deque()
        self._is_strict = bool(pages.strict(context))
        self._flagged = False

    def take(self, body: bytes) -> bytes | Denial | None:
        """Return what may pass of the whole answer: None as it is, or why it may not."""
        return self._pages.take(self, body)

    def decoded(self, body: bytes) -> bytes:
        """Return a whole body as UTF-8. Raises WireError where it cannot be decoded."""
        applied = codings(self._encodings)
        data = decode_body(body, applied, self._limit) if applied else body
        charsets = odd_charsets(self._content_types)
        if not charsets and data[:2] in _WIDE_MARKS:
            charsets = ["utf-16"]
        if not charsets:
            return data
        text = decode_text(data, charsets[0]) if len(charsets) == 1 else None
        if text is None:
            raise WireError("odd_charset", f"charset {charsets[0][:40]!r} is not known")
        return text.encode("utf-8", "replace")

    def feed(self, chunk: bytes) -> bytes | None:
        """Take the next bytes; return those that may be sent now, or None where the answer ends here."""
        try:
            clean = self._look(chunk)
        except Exception as error:  # noqa: BLE001  a layer's boundary: what cannot be examined does not pass
            log.warning("an answer cannot be examined", server=self.context.server, error=str(error))
            clean = not self._is_strict
        if not clean:
            return None
        if self.streams or not self._is_strict:
            return chunk
        self._held.append((self._seen, chunk))
        settled: list[bytes] = []
        while self._held and self._held[0][0] <= self._seen - KEPT:
            settled.append(self._held.popleft()[1])
        return b"".join(settled)

    def close(self) -> bytes:
        """Return what was held back; the answer is whole."""
        rest = b"".join(chunk for _, chunk in self._held)
        self._held.clear()
        return rest

    def _look(self, chunk: bytes) -> bool:
        if self._flagged and not self._is_strict:
            return True
        if self._inflaters is None:
            self._inflaters = [inflater(coding, 1 << 62) for coding in reversed(codings(self._encodings))]
        for engine in self._inflaters:
            chunk = engine.feed(chunk)
        self._seen += len(chunk)
        window = self._tail + self._decode(chunk).encode()
        self._tail = window[-KEPT:]
        return self._pages.passes(self.context, window)
