"""What the layers have judged of one request head, so that the next request with the same head need not pass them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mitmproxy.net.http.http1 import assemble_request_head

from addons.flow_state import wants_only_events
from addons.lane.heads import HeadTemplate, RequestKey, head_template, is_plain_request, request_key
from proxy.core.vault import MARK
from proxy.wire.mcp import RequestHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mitmproxy import http
    from mitmproxy.connection import Server

    from addons.flow_state import FlowState
    from addons.mitm.fast.http_layer import FastHttp1Client
    from addons.mitm.fast.tls_records import FastTls
    from proxy.core.model import Context

# The parts of a context that are a header's value, by the header.
_IN_CONTEXT = {"mcp-protocol-version": "revision", "mcp-session-id": "session", "traceparent": "traceparent"}


class Judged(NamedTuple):
    """What the gate reads of a head."""

    context: Context
    head: RequestHead


class Lesson(NamedTuple):
    """A judged head, before it is known which connection its request took."""

    key: RequestKey
    judged: Judged
    """Of the request that taught it."""
    credentials: Sequence[str]
    address: tuple[str, int]
    path: str
    takes_json: bool
    """Whether the client takes an answer that is no event stream."""
    forwarded: HeadTemplate

    def with_values(self, values: tuple[bytes, ...]) -> Judged:
        """Return what the gate reads of the same head with other values."""
        if values == self.key.values:
            return self.judged
        # The names are those of the head that was learnt, each once; the values are printable ASCII.
        new = {name.decode(): value.decode() for name, value in zip(self.key.names, values, strict=True)}
        context, head = self.judged
        changed: dict[str, Any] = {field: new[name] for name, field in _IN_CONTEXT.items() if name in new}
        is_marked = any(MARK in each for each in new.values())
        fields = [(name, new.get(name.lower(), value)) for name, value in head.whole()]
        mcp = [(name, new.get(name.lower(), value)) for name, value in head.mcp]
        return Judged(
            replace(context, **changed) if changed else context,
            RequestHead(head.content_types, head.encodings, mcp, lambda: fields, is_marked),
        )


@dataclass(frozen=True, slots=True)
class Template:
    """A judged head and the open connection that its requests take."""

    lesson: Lesson
    server: Server
    tls: FastTls | None
    http1: FastHttp1Client


def lesson_of(flow: http.HTTPFlow, state: FlowState, context: Context, head: RequestHead) -> Lesson | None:
    """Return what can be learnt from a request that is about to be forwarded; its headers as they came."""
    # A head with a placeholder is never learnt: another one is sent in its place.
    if context.transport != "http" or head.is_marked or not is_plain_request(state.raw_head):
        return None
    key = request_key(state.raw_head)
    # The list is made here: the request's own headers change when it is forwarded.
    fields = list(head.whole())
    names = [name.lower() for name, _ in fields]
    # A field that stands twice is read in more than one way: such a head is none for the lane.
    if key is None or any(names.count(name.decode()) != 1 for name in key.names):
        return None
    kept = RequestHead(list(head.content_types), list(head.encodings), list(head.mcp), lambda: fields, is_marked=False)
    request = flow.request
    address, takes_json = (request.host, request.port), not wants_only_events(flow)
    unknown = HeadTemplate((), ())  # until it is forwarded
    return Lesson(key, Judged(context, kept), state.credentials, address, request.path, takes_json, unknown)


def with_forwarded(lesson: Lesson, request: http.Request) -> Lesson | None:
    """Return the lesson with the head that is forwarded; None where that is not a plain one."""
    forwarded = assemble_request_head(request)
    template = head_template(forwarded, lesson.key.names)
    key = request_key(forwarded)
    if template is None or key is None or not is_plain_request(forwarded):
        return None
    # Filled with what it was made of it is the same again, so it is with what comes.
    same = template.fill(lesson.key.values, key.length) == forwarded
    return lesson._replace(forwarded=template) if same else None
