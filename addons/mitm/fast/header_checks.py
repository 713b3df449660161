"""Two checks of mitmproxy that every head passes several times: quick for a plain head, mitmproxy's own for others.

Both can only ever say yes sooner. Whatever is not recognised as plain here goes to mitmproxy's own check, which alone
refuses; tests/addons/mitm/fast/test_header_checks.py compares both on generated heads.

Gain: @@
Unnecessary once mitmproxy checks a head once, or its Headers have an index.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mitmproxy.net.http import http1, validate
from mitmproxy.net.http.http1 import read
from mitmproxy.proxy.layers import http as http_layers

from addons.header_fields import index

if TYPE_CHECKING:
    from mitmproxy.http import Message, Request, Response

    from addons.header_fields import Index

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9a-zA-Z]+"
_NAMES = re.compile(_TOKEN + rb"(?::" + _TOKEN + rb")*")
_LENGTH = re.compile(rb"0|[1-9][0-9]*")
_their_validation = validate.validate_headers
_their_size = read.expected_http_body_size


def install() -> None:
    """Have mitmproxy call these."""
    http_layers.validate_headers = validate_headers
    http1.expected_http_body_size = expected_http_body_size


def validate_headers(message: Message) -> None:
    """Refuse headers that servers may read differently. Raises ValueError."""
    names = b":".join([name for name, _ in message.headers.fields])
    if _NAMES.fullmatch(names) and names.count(b":") == len(message.headers.fields) - 1:
        fields = index(message.headers)
        lengths = fields.get(b"content-length", ())
        if b"transfer-encoding" not in fields:
            if not lengths or _length(lengths) is not None:
                return
        elif not lengths and _is_chunked(message, fields):
            return
    _their_validation(message)


def expected_http_body_size(request: Request, response: Response | None = None) -> int | None:
    """Return how long a body will be: None where it comes in chunks, -1 where it ends with the connection.

    Raises ValueError where its head does not say plainly.
    """
    plain = response is None or (response.data.status_code == 200 and request.data.method in (b"POST", b"GET"))
    if plain:
        fields = index((response or request).headers)
        if b"transfer-encoding" not in fields:
            length = _length(fields.get(b"content-length", ()))
            if length is not None:
                return length
        elif fields[b"transfer-encoding"] == [b"chunked"]:
            return None
    return _their_size(request, response)


def _is_chunked(message: Message, fields: Index) -> bool:
    """Say that a body comes in chunks, and that it may."""
    allowed = message.data.http_version == b"HTTP/1.1" and getattr(message.data, "status_code", 200) == 200
    return allowed and fields[b"transfer-encoding"] == [b"chunked"]


def _length(values: list[bytes] | tuple[()]) -> int | None:
    """Read the one Content-Length there is; None where there is none, more than one, or an odd one."""
    if len(values) != 1 or len(values[0]) > 18 or not _LENGTH.fullmatch(values[0]):
        return None
    return int(values[0])
