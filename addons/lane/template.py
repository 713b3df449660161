"""What the layers have judged of one request head, so that the next request with the same head need not pass them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mitmproxy.net.http.http1 import assemble_request_head

from addons.lane.heads import is_plain_request, request_key
from proxy.wire.mcp import RequestHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mitmproxy import http
    from mitmproxy.connection import Server

    from addons.flow_state import FlowState
    from addons.mitm.fast.http_layer import FastHttp1Client
    from addons.mitm.fast.tls_records import FastTls
    from proxy.core.model import Context


class Lesson(NamedTuple):
    """A judged head, before it is known which connection its request took."""

    key: tuple[bytes, bytes]
    context: Context
    head: RequestHead
    credentials: Sequence[str]
    address: tuple[str, int]
    path: str
    before: bytes
    """What is forwarded, up to the value of its Content-Length."""
    after: bytes


@dataclass(frozen=True, slots=True)
class Template:
    """A judged head and the open connection that its requests take."""

    lesson: Lesson
    server: Server
    tls: FastTls | None
    http1: FastHttp1Client


def lesson_of(flow: http.HTTPFlow, state: FlowState, context: Context, head: RequestHead) -> Lesson | None:
    """Return what can be learnt from a request that is about to be forwarded; its headers as they came."""
    if context.transport != "http" or not is_plain_request(state.raw_head):
        return None
    key = request_key(state.raw_head)
    if key is None:
        return None
    # The list is made here: the request's own headers change when it is forwarded.
    fields = list(head.whole())
    kept = RequestHead(list(head.content_types), list(head.encodings), list(head.mcp), lambda: fields)
    request = flow.request
    address = request.host, request.port
    return Lesson((key.before, key.after), context, kept, state.credentials, address, request.path, b"", b"")


def with_forwarded(lesson: Lesson, request: http.Request) -> Lesson | None:
    """Return the lesson with the head that is forwarded; None where that is not a plain one."""
    forwarded = assemble_request_head(request)
    key = request_key(forwarded)
    if key is None or not is_plain_request(forwarded):
        return None
    return lesson._replace(before=key.before, after=key.after)
