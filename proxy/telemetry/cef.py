r"""Audit events in ArcSight's Common Event Format, version 0. Pure.

CEF:0|Vendor|Product|Version|Signature ID|Name|Severity|Extension

In the header `\` and `|` are escaped, in an extension's value `\`, `=` and line ends. A control character that has no
escape is written as text (`\\u0000`), so that no value can begin a line, a field or a key of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.core.json_codec import encode_json
from proxy.system.package_data import version
from proxy.telemetry.exported_event import UNSAFE, shorten

if TYPE_CHECKING:
    from proxy.telemetry.exported_event import ExportedEvent

_SEVERITIES: Final = {"info": 1, "low": 3, "medium": 6, "high": 8}
_WHOLE: Final = frozenset({"externalId", "cs3", "cs6"})  # ids and hashes: cut, they would name nothing
MAX_VALUE: Final = 4000  # characters, which is the longest that CEF has for its own texts


def cef_line(event: ExportedEvent, limit: int = MAX_VALUE) -> str:
    """Return an event as one line of CEF, with values of at most `limit` characters."""
    # Nothing that an agent chooses: some readers split a header at every `|` whose last sign before is no backslash.
    name = " ".join(filter(None, (event.kind, event.text("decision"))))
    header = ("mcp-interlock", "Interlock", event.text("proxy_version") or version(), event.kind, name)
    said = {**_keys(event), **_custom(event)}
    if event.fields.get("arguments") is not None:
        said |= {"cs5Label": "arguments", "cs5": encode_json(event.fields["arguments"])}
    extension = " ".join(
        f"{key}={_value(value, 128 if key in _WHOLE else limit)}" for key, value in said.items() if value is not None
    )
    return "|".join(("CEF:0", *map(_header, header), str(_SEVERITIES[event.severity]), extension))


def _keys(event: ExportedEvent) -> dict[str, Any]:
    """Return what CEF's dictionary has a key for."""
    return {
        "rt": round(event.time * 1000),
        "externalId": event.event_id,
        "dvchost": event.text("host"),
        "suser": event.who,
        "destinationServiceName": event.text("server"),
        "requestMethod": event.text("method"),
        "act": event.text("decision"),
        "reason": event.text("reason"),
        "outcome": event.text("outcome"),
        "app": event.text("transport"),
        "in": event.fields.get("result_size"),
        "msg": event.summary,
    }


def _custom(event: ExportedEvent) -> dict[str, Any]:
    """Return what it has none for: custom keys with labels that say what they are."""
    custom = {
        "cs1": ("tool", event.text("tool")),
        "cs2": ("rule", event.text("rule")),
        "cs3": ("auditId", event.call_id),
        "cs4": ("session", event.text("session")),
        "cs6": ("chain", event.chain),
        "cn1": ("sequence", event.seq),
        "cn2": ("totalMs", None if (took := event.number("total_ms")) is None else round(took)),
    }
    said: dict[str, Any] = {}
    for key, (label, value) in custom.items():
        if value is not None:
            said |= {f"{key}Label": label, key: value}
    return said


def _spelt_out(text: str) -> str:
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _header(text: str) -> str:
    one_line = re.sub(r"[\r\n\t]+", " ", shorten(text, 128))
    return _spelt_out(one_line).replace("\\", "\\\\").replace("|", "\\|")


def _value(value: object, limit: int) -> str:
    short = shorten(str(value), limit)
    # Line ends have an escape of their own; it is written after all else that has a backslash.
    parts = [_spelt_out(part).replace("\\", "\\\\").replace("=", "\\=") for part in re.split("\r\n|[\r\n]", short)]
    return "\\n".join(parts)
