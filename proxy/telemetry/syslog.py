"""Audit events as syslog messages by RFC 5424, and the framing of RFC 6587. Pure.

<PRI>1 TIMESTAMP HOSTNAME interlock WRITER KIND [interlock@32473 key="value" …] BOM text
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final

from proxy.core.json_codec import encode_json
from proxy.telemetry.exported_event import UNSAFE

if TYPE_CHECKING:
    from proxy.telemetry.exported_event import ExportedEvent

FACILITY: Final = 13  # log audit
_SEVERITIES: Final = {"info": 6, "low": 5, "medium": 4, "high": 2}
# 32473 is the number that IANA keeps for documentation. An element's name has to have one.
ELEMENT: Final = "interlock@32473"
BOM: Final = "\ufeff"
NIL: Final = "-"
MAX_VALUE: Final = 4000
_SPECIAL: Final = re.compile(r'["\\\]]')
_FIELDS: Final = (
    *("event_id", "call_id", "agent", "server", "transport", "method", "tool", "decision", "reason", "rule"),
    *("outcome", "policy_version", "session", "jsonrpc_id", "total_ms", "arguments_hash", "result_digest"),
)


def syslog_line(event: ExportedEvent, text: str | None = None) -> str:
    """Return an event as one message without its framing. `text` is the free part; without, what happened."""
    priority = FACILITY * 8 + _SEVERITIES[event.severity]
    when = dt.datetime.fromtimestamp(event.time, dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    names = (_name(event.text("host"), 255), "interlock", _name(event.writer, 128), _name(event.kind, 32))
    data = _element(event)
    return f"<{priority}>1 {when} {' '.join(names)} {data} {BOM}{spelt_out(text or event.summary)}"


def cef_message(event: ExportedEvent, cef: str) -> str:
    """Return a line of CEF as the text of a message: without structured data, which it would say twice."""
    priority = FACILITY * 8 + _SEVERITIES[event.severity]
    when = dt.datetime.fromtimestamp(event.time, dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    names = (_name(event.text("host"), 255), "interlock", _name(event.writer, 128), _name(event.kind, 32))
    # No BOM: collectors look for `CEF:` where the text begins.
    return f"<{priority}>1 {when} {' '.join(names)} - {cef}"


def octet_counted(line: str) -> bytes:
    """Return a message as TCP and TLS carry it: its length in bytes, a space, and the message (RFC 6587, RFC 5425)."""
    data = line.encode("utf-8", "replace")
    return b"%d %b" % (len(data), data)


def _element(event: ExportedEvent) -> str:
    said: dict[str, Any] = {name: event.fields.get(name) for name in _FIELDS}
    said |= {"seq": event.seq, "chain": event.chain}
    if event.fields.get("arguments") is not None:
        said["arguments"] = encode_json(event.fields["arguments"])
    pairs = [f'{name}="{_value(value)}"' for name, value in said.items() if value is not None]
    return f"[{' '.join((ELEMENT, *pairs))}]"


def spelt_out(text: str) -> str:
    """Return text without control characters and without marks that change how it is read: they are written out."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _value(value: object) -> str:
    text = str(value)
    short = text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
    return _SPECIAL.sub(r"\\\g<0>", spelt_out(short))


def _name(value: str | None, most: int) -> str:
    """Return a name of the header: printable ASCII without spaces, and `-` where there is none."""
    return re.sub(r"[^\x21-\x7e]", "_", value or "")[:most] or NIL
