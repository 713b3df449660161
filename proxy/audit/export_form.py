"""How exported events are written: whole, or as rows of a table. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any

from proxy.audit.event_schema import StoredEvent

if TYPE_CHECKING:
    from proxy.core.event import LogEntry

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COLUMNS = ("time", "kind", *(name for name in StoredEvent.model_fields if name not in {"time", "kind"}), "seq")


def exported(entry: LogEntry) -> dict[str, Any]:
    """Return an event with its place in its writer's chain: `interlock audit verify --export` reads lines of these."""
    return {"body": entry.body, "writer": entry.writer, "seq": entry.seq, "chain": entry.chain}


def csv_cells(entry: LogEntry) -> list[Any]:
    """Return the values of COLUMNS, safe to open in a spreadsheet and to show on a terminal."""
    event = json.loads(entry.body) | {"writer": entry.writer, "seq": entry.seq}
    event["time"] = dt.datetime.fromtimestamp(event["time"], dt.UTC).isoformat()
    return [_cell(event.get(name)) for name in COLUMNS]


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return json.dumps(value) if isinstance(value, bool) else value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # Escape sequences would act on the terminal that shows the file, and direction marks reverse what is read.
    text = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    # A spreadsheet runs what begins so as a formula, and agents choose what is written here.
    return f"'{text}" if text.startswith(FORMULA) else text
