"""Puts credentials into a request at the last moment: in a copy of it that only the connection to the server sees.

All that records, logs or learns from a flow reads the request with its placeholders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from addons import flow_state as flows
from addons.header_fields import drop_fields, replace_fields
from proxy.gate.placeholders import fill_headers, fill_target

if TYPE_CHECKING:
    from mitmproxy import http

    from proxy.core.vault import Filling

# Of the body that came: another one is sent, and in parts an answer could not be masked.
_OF_THE_OLD: Final = (b"content-md5", b"digest", b"content-digest", b"repr-digest")
_CODINGS: Final = (b"content-encoding", b"transfer-encoding", b"trailer")
PARTS: Final = (b"range", b"if-range")


def needs_filling(filling: Filling | None) -> bool:
    """Return whether anything is put into a request."""
    return filling is not None and bool(filling.names)


def fill_in(flow: http.HTTPFlow) -> None:
    """Let the connection see the request with its values; `take_back` ends that."""
    state = flows.state_of(flow)
    if state.filling is None or state.unfilled is not None or not needs_filling(state.filling):
        return
    state.unfilled = flow.request
    flow.request = filled(flow.request, state.filling)


def take_back(flow: http.HTTPFlow) -> None:
    """Let all see the request as it came again."""
    state = flows.state_of(flow)
    if state.unfilled is not None:
        flow.request, state.unfilled = state.unfilled, None


def filled(request: http.Request, filling: Filling) -> http.Request:
    """Return a copy of a request with values in place of placeholders."""
    made = request.copy()
    made.stream = request.stream
    made.path = fill_target(request.path, filling.head)
    made.headers.fields = fill_headers(made.headers.fields, filling.head, filling.arguments)
    put = {b"accept-encoding": b"identity"}
    drop_fields(made.headers, PARTS)
    if filling.body is not None:
        made.raw_content = filling.body.reveal()
        put[b"content-length"] = b"%d" % len(made.raw_content or b"")
        drop_fields(made.headers, (*_OF_THE_OLD, *_CODINGS))
    replace_fields(made.headers, (), put)
    return made
