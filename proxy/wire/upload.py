"""Scan an upload as it streams past for words that only an MCP message has. Pure.

For uploads past the body limit to hosts that may receive them. The words stand inside the message, so an upload cut
off where they appear is one that no server can have parsed to its end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proxy.errors import WireError
from proxy.wire.content_coding import BROKEN, Inflater, codings, inflater, odd_charsets
from proxy.wire.form_fields import find_in_form
from proxy.wire.json_sniff import SKIPPED, could_be_json, could_be_lenient, has_mcp_words, is_undecided, line_views

if TYPE_CHECKING:
    from collections.abc import Sequence

# Longer than any of the words, even with every letter as \uXXXX: the end of a chunk cuts none in two.
OVERLAP = 1024
HEAD = 4096
_LINE_END = re.compile(rb"[\r\n]++")


class UploadScanner:
    """Decides for each chunk of one upload whether it may be forwarded.

    `only_json` where it is read by no parser of other formats: a field of protobuf is prose more often than YAML.
    """

    def __init__(
        self, content_types: Sequence[str], encodings: Sequence[str], limit: int, *, only_json: bool = False
    ) -> None:
        self._refused = bool(odd_charsets(content_types))
        self._inflaters: list[Inflater] = []
        try:
            self._inflaters = [inflater(coding, limit) for coding in reversed(codings(encodings))]
        except WireError:
            self._refused = True
        self._scans = [_WordScan(content_types, only_json=only_json) for _ in range(len(self._inflaters) + 1)]

    def passes(self, chunk: bytes) -> bool:
        """Return whether `chunk` may be forwarded."""
        if self._refused:
            return False
        try:
            self._refused = self._suspicious(chunk)
        except (WireError, *BROKEN):
            self._refused = True
        return not self._refused

    def _suspicious(self, chunk: bytes) -> bool:
        found = self._scans[0].suspicious(chunk)
        for scan, engine in zip(self._scans[1:], self._inflaters, strict=True):
            chunk = engine.feed(chunk)
            found = scan.suspicious(chunk) or found
        return found


class _WordScan:
    """The scan of one form of the bytes: as they are, or after a content coding."""

    def __init__(self, content_types: Sequence[str], *, only_json: bool) -> None:
        self._content_types = content_types
        self._only_json = only_json
        self._head = b""
        self._tail = b""
        self._line = b""

    def suspicious(self, chunk: bytes) -> bool:
        if len(self._head) < HEAD:
            self._head += chunk[: HEAD - len(self._head)]
        window, self._tail = self._tail + chunk, (self._tail + chunk)[-OVERLAP:]
        if not self._head.lstrip(SKIPPED):
            # Blanks leave open what follows, but not for ever.
            return len(self._head) >= HEAD
        if find_in_form(window, self._content_types):
            return True
        begins = could_be_json(self._head) or is_undecided(self._head)
        if not begins and (self._only_json or not could_be_lenient(self._head)):
            return self._has_call_line(chunk)
        # Without its zero bytes, UTF-16 and UTF-32 read as UTF-8 wherever a chunk was cut.
        return has_mcp_words(window.replace(b"\0", b"").decode("utf-8", "replace"))

    def _has_call_line(self, chunk: bytes) -> bool:
        """Look only at lines that begin as JSON: bridges from HTTP to stdio pass lines on."""
        found, last = False, b""
        for view in line_views(self._line + chunk):
            lines = _LINE_END.split(view)
            begun = [line for line in lines if line.lstrip(SKIPPED)[:1] in (b"{", b"[")]
            found = found or any(has_mcp_words(line.replace(b"\0", b"").decode("utf-8", "replace")) for line in begun)
            # The first that may go on: it holds what the others begin with.
            last = last if last.lstrip(SKIPPED)[:1] in (b"{", b"[") else lines[-1]
        # Of a line that goes on, its beginning and its end are enough.
        self._line = last if len(last) <= 2 * OVERLAP else last[:OVERLAP] + last[-OVERLAP:]
        return found
