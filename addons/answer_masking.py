"""Masks what servers answer where it arrives: before anything reads, records or passes it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from addons import flow_state as flows
from addons.header_fields import drop_fields
from proxy.errors import WireError
from proxy.gate.reflections import AnswerMask
from proxy.gate.refusal import withheld
from proxy.wire.content_coding import codings

if TYPE_CHECKING:
    from mitmproxy import http

    from proxy.gate.gate import Gate
    from proxy.gate.reflections import Mask

log = structlog.get_logger("interlock.http")

WHOLE: Final = 1 << 20
# Of the bytes that came.
_DIGESTS: Final = (b"etag", b"content-md5", b"digest", b"repr-digest", b"content-digest")
_STREAMS: Final = (flows.EVENT_STREAM, "application/x-ndjson", "application/jsonl", "application/stream+json")


def begin(gate: Gate, flow: http.HTTPFlow) -> None:
    """Mask the head of an answer, and have its body masked as it comes."""
    response, state, reflections = flow.response, flows.state_of(flow), gate.reflections
    if response is None or state.answered or not reflections.is_on:
        return
    mask = reflections.current()
    if mask is not None:
        mask_head(mask, response)
    if response.status_code == 101 or (mask is None and not _may_bring_later(gate, response)):
        return
    if flow.request.method.upper() == "HEAD" or response.status_code in (204, 304):
        return
    try:
        state.mask = AnswerMask(reflections, codings(response.headers.get_all("content-encoding")))
    except WireError as error:
        log.warning("an answer that cannot be masked is withheld", server=flows.server_name(flow), error=str(error))
        gate.recorder.record_refusal("result_withheld", "unreadable_response", flows.context(flow))
        state.redirect = withheld("unreadable_response", flow.request.method)
        return
    drop_fields(response.headers, (b"content-encoding",))


def _may_bring_later(gate: Gate, response: http.Response) -> bool:
    """Return whether an answer may bring what is given out only after it has begun: one of unknown length."""
    if flows.media_type(response) in _STREAMS:
        return True
    return "content-length" not in response.headers and gate.reflections.may_come()


def hold(flow: http.HTTPFlow) -> None:
    """Let an answer that is short be read whole, so that it keeps a length."""
    response, mask = flow.response, flows.state_of(flow).mask
    if response is None or mask is None or mask.current() is None or response.stream is not True:
        return
    length = response.headers.get("content-length", "")
    if length.isdigit() and int(length) <= WHOLE and flows.media_type(response) not in _STREAMS:
        response.stream = False


def mask_head(mask: Mask, response: http.Response) -> None:
    """Mask the fields of an answer's head, and its reason."""
    data = response.data
    data.reason = mask.apply(data.reason)
    mask_fields(mask, data.headers)


def mask_fields(mask: Mask, headers: http.Headers) -> None:
    """Mask the names and values of some fields."""
    fields = tuple((mask.apply(name), mask.apply(value)) for name, value in headers.fields)
    if fields != tuple(headers.fields):
        headers.fields = fields


def unframe(flow: http.HTTPFlow) -> None:
    """Let an answer that streams have no length: it may come to have another one."""
    response = flow.response
    if response is None or flows.state_of(flow).mask is None:
        return
    drop_fields(response.headers, _DIGESTS[1:])
    if response.headers.pop("content-length", None) is not None and flow.request.http_version == "HTTP/1.1":
        response.headers["transfer-encoding"] = "chunked"


def settle(flow: http.HTTPFlow) -> None:
    """Give an answer that was read whole the length that it has come to have."""
    response, mask = flow.response, flows.state_of(flow).mask
    if response is None or mask is None or not response.raw_content:
        return
    if "content-length" in response.headers:
        response.headers["content-length"] = str(len(response.raw_content))
    if mask.has_changed:
        drop_fields(response.headers, _DIGESTS)
