"""What Interlock knows of an HTTP flow: its one typed state, where it comes from and where it goes. No decisions."""

from __future__ import annotations

import functools
import ipaddress
import json
import re
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http import url
from mitmproxy.proxy.layers.http import RequestProtocolError

from addons.header_fields import index, replace_fields
from proxy.core import reasons
from proxy.core.model import Context, Decision, Denial, Outcome, Principal
from proxy.egress.guard import UNJUDGED
from proxy.gate.placeholders import is_marked
from proxy.policy import server_names
from proxy.wire.client_stream import ClientStream
from proxy.wire.hidden_request import has_request_line
from proxy.wire.mcp import RequestHead

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Mapping, Sequence

    from mitmproxy.connection import Client, Server

    from addons.held_response import HeldResponse
    from addons.lane.template import Lesson
    from addons.page_labels import PageLabels
    from addons.sse_rewriter import EventStream
    from proxy.core.model import Verdict, Way
    from proxy.core.vault import Filling
    from proxy.gate.outbound_scan import UploadWatch
    from proxy.gate.plain_response import PageWatch
    from proxy.gate.reflections import AnswerMask, Reflections
    from proxy.gate.router import ResponseRouter
    from proxy.wire.stream_scan import StreamScanner

JSON_TYPE = "application/json"
EVENT_STREAM = "text/event-stream"
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_OF_THE_OLD_BODY = frozenset({b"content-encoding", b"transfer-encoding", b"trailer"})
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True)
class FlowState:
    """What Interlock knows of one flow. The addons and layers fill it in as the flow proceeds."""

    principal: Principal | None = None
    """Who is calling; None until the request's head has arrived."""
    egress: Decision = UNJUDGED
    """What policy says of the destination; a refusal until it was judged."""
    answered: bool = False
    """Whether Interlock answered in the server's place."""
    refused: str | None = None
    """The reason code, where a layer ended the flow at a limit."""
    router: ResponseRouter | None = None
    """Routes what the server sends back; None where nothing in the response is MCP."""
    rewriter: EventStream | None = None
    """Rewrites the response, where that is an event stream."""
    scanner: StreamScanner | None = None
    """Looks for MCP in an upload that streams."""
    page_labels: PageLabels | None = None
    """Reads a labelled page as it passes."""
    watch: UploadWatch | None = None
    """Looks for secrets in an upload that streams."""
    page: PageWatch | None = None
    """Examines the response, where that is a page or a card and policy asks for it."""
    stream: ClientStream = field(default_factory=ClientStream)
    """What a WebSocket client has sent so far."""
    held: set[asyncio.Task[None]] | None = None
    """Calls of a WebSocket that wait for people."""
    held_response: HeldResponse | None = None
    """The response that was begun while its call waits for people; its head is sent."""
    redirect: Denial | None = None
    """Why the response may not reach the agent: it sends the agent where it may not go."""
    raw_head: bytes = b""
    """The bytes of the request's head, where it came over HTTP/1 and the lane may learn from it."""
    layer: object | None = None
    """The HTTP layer of this flow, for the lane."""
    credentials: Sequence[str] = ()
    """The proxy credentials that showed who is calling."""
    premade: Verdict | Exception | None = None
    """The gate's verdict on this request, where the lane has asked for it already."""
    sent_on: Server | None = None
    """The connection on which the lane has sent this request already."""
    lesson: Lesson | None = None
    """What the lane learns from this flow if it ends well."""
    filling: Filling | None = None
    """The credentials that are put into the request when it is sent."""
    unfilled: http.Request | None = None
    """The request as it came, while the connection to the server sees it with its credentials."""
    mask: AnswerMask | None = None
    """Masks the response as it comes."""
    reflections: Reflections | None = None
    """What messages of a WebSocket, and of errors, are masked with."""
    queued: Collection[object] = ()
    """What the layer of this flow has yet to handle, which it does once the hook that it waits for has ended."""


def is_readable(connection: Client) -> bool:
    """Return whether a client may still send; one that has closed its side waits for nothing."""
    return bool(connection.state & ConnectionState.CAN_READ)


def ends_request(event: object) -> bool:
    """Return whether an event says that the client gave its request up."""
    return isinstance(event, RequestProtocolError)


# mitmproxy's flows have slots for its own attributes only; this dictionary is what it keeps for its addons.
_KEY = "interlock"


def state_of(flow: http.HTTPFlow) -> FlowState:
    """Return the state of a flow, a fresh one where it has none yet."""
    state: FlowState | None = flow.metadata.get(_KEY)
    if state is None:
        state = flow.metadata[_KEY] = FlowState()
    return state


def principal(flow: http.HTTPFlow) -> Principal:
    """Return who is calling. Raises LookupError before that is known: nothing is decided for nobody."""
    known = state_of(flow).principal
    if known is None:
        raise LookupError("the caller of a flow is not known yet")
    return known


def context(flow: http.HTTPFlow) -> Context:
    """Return what the gate knows of a flow beside its body."""
    headers = flow.request.headers
    legacy = legacy_session(flow.request.path)
    return Context(
        principal=principal(flow),
        server=server_name(flow),
        transport="sse" if legacy and "mcp-session-id" not in headers else "http",
        revision=headers.get("mcp-protocol-version"),
        session=headers.get("mcp-session-id") or legacy,
        egress=state_of(flow).egress,
        target=flow.request.path,
        traceparent=headers.get("traceparent"),
        way=_way(flow),
    )


def _way(flow: http.HTTPFlow) -> Way:
    """Return who can read what is sent: over TLS the server alone, whose certificate has the name that was judged."""
    if flow.request.scheme == "https":
        return "sealed"
    host, proven = named_host(flow)
    if not proven:
        return "claimed"
    return "sealed" if host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback) else "plain"


def head(request: http.Request) -> RequestHead:
    """Return a request's headers to the gate; what it does not look at need not be made text of."""
    headers = request.headers
    fields = index(headers)
    mcp = [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name in fields
        if name[:4] == b"mcp-"
        for value in fields[name]
    ]
    encoded = b"content-encoding" in fields
    return RequestHead(
        headers.get_all("content-type"),
        headers.get_all("content-encoding") if encoded else (),
        mcp,
        lambda: list(headers.items(multi=True)),
        is_marked(headers.fields),
    )


def may_leave(flow: http.HTTPFlow) -> bool:
    """Return whether policy lets a flow go where it wants to."""
    return state_of(flow).egress.outcome is Outcome.ALLOW


def legacy_session(path: str) -> str | None:
    """Return the session that a legacy HTTP+SSE message endpoint names in its query."""
    if "?" not in path:
        return None
    for key, value in parse_qsl(urlsplit(path).query):
        if key.lower().replace("_", "") == "sessionid":
            return value
    return None


def server_name(flow: http.HTTPFlow) -> str:
    """Return the server's one name: its host, and its port where that is not the scheme's own."""
    request = flow.request
    return server_names.server_name(named_host(flow)[0], request.port, DEFAULT_PORTS.get(request.scheme))


def named_host(flow: http.HTTPFlow) -> tuple[str, bool]:
    """Return the host a request goes to, by name where it has one, and whether the name is more than a claim.

    The name in TLS is: the server must show a certificate for it. Each name in its one canonical form.
    """
    request = flow.request
    host = server_names.canonical_name(request.host)
    if not is_address(host):
        return host, True
    if request.scheme == "https":
        return server_names.canonical_name(flow.client_conn.sni or host), True
    claimed = _host_of(request.host_header) if is_transparent(flow) else None
    return (server_names.canonical_name(claimed), False) if claimed else (host, True)


def misdirected(flow: http.HTTPFlow) -> str | None:
    """Say why the names a request gives do not agree; None where they do.

    Rules are matched by the server's name, so a request may not go by two.
    """
    request = flow.request
    if len(index(request.headers).get(b"host", ())) > 1:
        return "the Host header stands twice"
    # Over HTTP/2 a path may be a whole URL, which a server that forwards takes for the host.
    if request.data.path[:1] != b"/" and request.data.path != b"*":
        return f"the target {request.path[:80]!r} is not a path"
    scheme, authority, header = request.scheme, request.authority, request.host_header
    is_reverse = flow.client_conn.proxy_mode.type_name == "reverse"
    sni = flow.client_conn.sni if scheme == "https" and not is_reverse else None
    host = _bare(request.host)
    if sni and not is_address(host) and _bare(sni) != host:
        return f"the TLS server name {sni!r} is not the host {host!r}"
    in_line = authority and not request.is_http2
    if in_line and not (_host_of(authority) == host and _same_port(request, authority)):
        return f"the request line names {authority!r}, not the host {host!r}"
    if header and not _same_port(request, header):
        return f"the Host header {header!r} names another port than {request.port}"
    named = _host_of(header)
    if named is None or named == host:
        return None
    claimable = scheme == "http" and is_transparent(flow)  # nothing but the header has the name there
    if (claimable and not is_address(named)) or named == _bare(sni or host):
        return None
    return f"the Host header {named!r} is not the host {host!r}"


def _same_port(request: http.Request, authority: str) -> bool:
    try:
        port = _parse_authority(authority)[1]
    except ValueError:
        return False
    return (port or DEFAULT_PORTS.get(request.scheme)) == request.port


def settle_framing(request: http.Request) -> None:
    """Give a buffered request the one framing that every server reads alike: its length, and no more.

    What came over HTTP/2 needs none; without one its body would be the next request of an HTTP/1 server.
    """
    data = request.data
    fields, length = index(data.headers), b"%d" % len(data.content or b"")
    request.trailers = None
    if not request.is_http2:
        data.authority = b""
    chunked = b"transfer-encoding" in fields
    if chunked or b"trailer" in fields or (data.content and fields.get(b"content-length") != [length]):
        put = {b"content-length": length} if chunked or data.content else {}
        replace_fields(data.headers, (b"transfer-encoding", b"trailer"), put)


def forward_as_json(request: http.Request, body: bytes, more: Mapping[str, str]) -> None:
    """Put `body` in place of what a request carried, with the one framing and the headers that go with it."""
    request.trailers = None
    request.raw_content = body
    if not request.is_http2:
        request.data.authority = b""
    fixed = {
        b"content-length": b"%d" % len(body),
        b"content-type": b"application/json",
        b"accept-encoding": b"identity",
    }
    replace_fields(request.headers, _OF_THE_OLD_BODY, fixed)
    if more:
        request.headers.update(more)


def odd_framing(request: http.Request) -> str | None:
    """Return the reason to refuse a request whose framing servers read differently; None where there is none.

    Some servers take a bare CR for a line's end; some take no notice of the length of
    a GET's body and read on in it.
    """
    data = request.data
    line = data.method + data.path
    if b" " in line or _CONTROL.search(line + b"".join(chain.from_iterable(data.headers.fields))):
        return "odd_head"
    codings = index(data.headers).get(b"transfer-encoding")
    if codings is not None and [value.strip().lower() for value in codings] != [b"chunked"]:
        return "transfer_coding"
    bodiless = data.method.upper() in (b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"DELETE")
    if bodiless and has_request_line(request.raw_content or b""):
        return "hidden_request"
    return None


def is_transparent(flow: http.HTTPFlow) -> bool:
    """Return whether the client does not know of the proxy."""
    return flow.client_conn.proxy_mode.type_name == "transparent"


def _bare(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


@functools.lru_cache(maxsize=1024)
def is_address(host: str) -> bool:
    """Return whether a host is an IP address in canonical form."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _parse_authority(authority: str) -> tuple[str, int | None]:
    return url.parse_authority(authority, check=True)


def _host_of(authority: str | None) -> str | None:
    if not authority:
        return None
    try:
        return _bare(_parse_authority(authority)[0])
    except ValueError:
        return authority


def media_type(message: http.Message) -> str:
    """Return a message's media type without its parameters."""
    return str(message.headers.get("content-type", "")).partition(";")[0].strip().lower()


def wants_only_events(flow: http.HTTPFlow) -> bool:
    """Return whether the client takes an event stream and no JSON."""
    accept = flow.request.headers.get("accept", "").lower()
    return EVENT_STREAM in accept and JSON_TYPE not in accept and "*/*" not in accept


def answer(flow: http.HTTPFlow, status: int, body: bytes, content_type: str = JSON_TYPE, **headers: str) -> None:
    """Answer a flow in the server's place. An answer to HEAD has no body: it would be read as the next answer."""
    body = b"" if flow.request.method.upper() == "HEAD" else body
    fields = {"Content-Type": content_type, "Cache-Control": "no-store"} if body else {}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    flow.response = http.Response.make(status, body, fields)
    state_of(flow).answered = True


def denial(reason: str, subject: str, why: str = "") -> Denial:
    """Return the refusal of `subject` for a reason."""
    return Denial(reason, reasons.explain(reason, subject, why), retryable=reasons.REASONS[reason].retryable)


def answer_refused(flow: http.HTTPFlow, status: int, refusal: Denial) -> None:
    """Answer something that has no id to answer to."""
    later = {} if refusal.retry_after is None else {"Retry_After": str(refusal.retry_after)}
    answer(flow, status, refusal_body(refusal), **later)


def refusal_body(refusal: Denial) -> bytes:
    """Spell a refusal for a sender that cannot be answered by id."""
    return json.dumps({"error": {"message": refusal.text, "data": refusal.data()}}).encode()


def replace_body(message: http.Message, body: bytes) -> None:
    """Put `body` in place of what a message carried, with headers to match."""
    message.trailers = None
    message.raw_content = body
    replace_fields(message.headers, _OF_THE_OLD_BODY, {b"content-length": b"%d" % len(body)})
