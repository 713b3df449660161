"""Labels of pages that are not MCP: stored before the page is passed on, with fingerprints once it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.ids import new_id
from proxy.errors import StoreUnavailableError, WireError
from proxy.wire.content_coding import codings, decode_body
from proxy.wire.jsonrpc import parse_json

if TYPE_CHECKING:
    from mitmproxy import http

    from proxy.core.model import Context, Json
    from proxy.gate.flows import FlowGate

log = structlog.get_logger("interlock.flows")

MAX_PAGE: Final = 1 << 20


class PageLabels:
    """One page on its way to the client.

    Until all of it has passed, it counts as one whose fingerprints do not cover it: by then nobody can have sent more
    of it on than a flow would have to stop unread.
    """

    def __init__(self, gate: FlowGate, context: Context) -> None:
        self._gate = gate
        self._context = context
        self._id = new_id()
        self._read = bytearray()
        self._whole = True

    async def begin(self) -> bool:
        """Store the labels; return whether the page's content is wanted, too. Raises StoreUnavailableError."""
        marks = self._gate.page_marks(self._context, None, self._id)
        await self._gate.store(marks)
        return any(not mark.complete for mark in marks)

    def feed(self, data: bytes) -> bytes:
        """Take a part of the page, and pass it on as it is."""
        if self._whole:
            self._read += data
            if len(self._read) > MAX_PAGE:
                self._whole = False
                self._read.clear()
        return data

    async def end(self, response: http.Response | None) -> None:
        """Store fingerprints of the page, where all of it could be read. What fails leaves it as one that was not."""
        if not self._whole or response is None:
            return
        try:
            applied = codings(response.headers.get_all("content-encoding"))
            body = _value(decode_body(bytes(self._read), applied, 4 * MAX_PAGE))
            await self._gate.store(self._gate.page_marks(self._context, body, self._id))
        except (WireError, StoreUnavailableError) as error:
            log.warning("a page has labels and no fingerprints", server=self._context.server, error=str(error))


def _value(body: bytes) -> Json:
    try:
        return parse_json(body)
    except WireError:
        return body.replace(b"\0", b"").decode("utf-8", "ignore")
