"""Audit events as syslog messages by RFC 5424, and the framing of RFC 6587. Pure.

<PRI>1 TIMESTAMP HOSTNAME interlock WRITER KIND [interlock@32473 key="value" …] BOM text
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final

from proxy.core.json_codec import encode_json
from proxy.telemetry.exported_event import UNSAFE, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.telemetry.exported_event import ExportedEvent

FACILITY: Final = 13  # log audit
_SEVERITIES: Final = {"info": 6, "low": 5, "medium": 4, "high": 2}
# 32473 is the number that IANA keeps for documentation. An element's name has to have one.
ELEMENT: Final = "interlock@32473"
BOM: Final = "\ufeff"
NIL: Final = "-"
MAX_BYTES: Final = 8192  # what every server takes (RFC 5425); one that gets more may lose its place in the stream
_LIMITS: Final = (4000, 1000, 250, 60, 20)  # characters of a value: the first with which a message is small enough
_SPECIAL: Final = re.compile(r'["\\\]]')
_FIELDS: Final = (
    *("event_id", "call_id", "agent", "server", "transport", "method", "tool", "decision", "reason", "rule"),
    *("outcome", "policy_version", "session", "jsonrpc_id", "total_ms", "arguments_hash", "result_digest"),
)


_WHOLE: Final = frozenset({"event_id", "call_id", "chain", "arguments_hash", "result_digest", "policy_version"})


def syslog_line(event: ExportedEvent) -> str:
    """Return an event as one message without its framing: what it says as structured data, and a sentence."""

    def made(limit: int) -> str:
        return f"{_head(event)} {_element(event, limit)} {BOM}{spelt_out(shorten(event.summary, limit))}"

    return _fitting(made)


def cef_message(event: ExportedEvent, cef: Callable[[ExportedEvent, int], str]) -> str:
    """Return a line of CEF as the text of a message: without structured data, which it would say twice."""
    # No BOM: collectors look for `CEF:` where the text begins.
    return _fitting(lambda limit: f"{_head(event)} - {cef(event, limit)}")


def _fitting(made: Callable[[int], str]) -> str:
    """Return the message with the longest values that is no larger than MAX_BYTES."""
    for limit in _LIMITS[:-1]:
        if len((line := made(limit)).encode("utf-8", "replace")) <= MAX_BYTES:
            return line
    return made(_LIMITS[-1])


def _head(event: ExportedEvent) -> str:
    priority = FACILITY * 8 + _SEVERITIES[event.severity]
    when = dt.datetime.fromtimestamp(event.time, dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    names = (_name(event.text("host"), 255), "interlock", _name(event.writer, 128), _name(event.kind, 32))
    return f"<{priority}>1 {when} {' '.join(names)}"


def octet_counted(line: str) -> bytes:
    """Return a message as TCP and TLS carry it: its length in bytes, a space, and the message (RFC 6587, RFC 5425)."""
    data = line.encode("utf-8", "replace")
    return b"%d %b" % (len(data), data)


def _element(event: ExportedEvent, limit: int) -> str:
    said: dict[str, Any] = {name: event.fields.get(name) for name in _FIELDS}
    said |= {"seq": event.seq, "chain": event.chain}
    if event.fields.get("arguments") is not None:
        said["arguments"] = encode_json(event.fields["arguments"])
    # Ids and hashes are our own and short; cut, they would name nothing.
    pairs = [
        f'{name}="{_value(value, 128 if name in _WHOLE else limit)}"'
        for name, value in said.items()
        if value is not None
    ]
    return f"[{' '.join((ELEMENT, *pairs))}]"


def spelt_out(text: str) -> str:
    """Return text without control characters and without marks that change how it is read: they are written out."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _value(value: object, limit: int) -> str:
    return _SPECIAL.sub(r"\\\g<0>", spelt_out(shorten(str(value), limit)))


def _name(value: str | None, most: int) -> str:
    """Return a name of the header: printable ASCII without spaces, and `-` where there is none."""
    return re.sub(r"[^\x21-\x7e]", "_", value or "")[:most] or NIL
