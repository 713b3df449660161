"""The filter of the list of calls: read from a page's address, and asked of events as they come. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from proxy.console.security import RefusedError
from proxy.core.event import Cursor, Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = ("decision", "agent", "server", "tool", "rule")
DECISIONS: Final = ("allow", "deny", "propose")
SPANS: Final = {"15m": 900, "1h": 3600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
MAX_VALUE: Final = 200
_CURSOR: Final = re.compile(r"(\d{1,12}(?:\.\d{1,20})?)~([A-Za-z0-9._-]{1,128})")


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls a page shows. `*` in a name stands for any characters; `text` is anywhere in the call."""

    decision: str = ""
    agent: str = ""
    server: str = ""
    tool: str = ""
    rule: str = ""
    text: str = ""
    since: str = ""
    before: Cursor | None = None

    @staticmethod
    def read(query: Mapping[str, str]) -> CallFilter:
        """Parse a page's address. Raises RefusedError where it says something that there is not."""
        values = {name: query.get(name, "").strip() for name in (*NAMES, "text", "since")}
        for name, value in values.items():
            if len(value) > MAX_VALUE:
                raise RefusedError(400, "bad_filter", f"The filter {name} has more than {MAX_VALUE} characters.")
        if values["decision"] not in ("", *DECISIONS):
            raise RefusedError(400, "bad_filter", f"A decision is one of {', '.join(DECISIONS)}.")
        if values["since"] not in ("", *SPANS):
            raise RefusedError(400, "bad_filter", f"A time span is one of {', '.join(SPANS)}.")
        return CallFilter(**values, before=_cursor(query.get("before", "")))

    def query(self, now: float) -> Filter:
        """Return the question to the store."""
        names: dict[str, Any] = {name: getattr(self, name) or None for name in NAMES}
        since = now - SPANS[self.since] if self.since else None
        return Filter(**names, text=self.text or None, since=since)

    def fits(self, event: Mapping[str, Any]) -> bool:
        """Return whether the `decided` event of a call matches: what the store says of `query`, for one event."""
        named = all(_fits(getattr(self, name), event.get(name)) for name in NAMES)
        return named and (not self.text or self.text.casefold() in _searched(event))

    def address(self, **changes: str) -> str:
        """Return the query of the page's address with this filter, changed."""
        values = {name: getattr(self, name) for name in (*NAMES, "text", "since")} | changes
        return urlencode({name: value for name, value in values.items() if value})

    @property
    def is_set(self) -> bool:
        return any(getattr(self, name) for name in (*NAMES, "text", "since"))


def write_cursor(cursor: Cursor) -> str:
    return f"{cursor.time!r}~{cursor.event_id}"


def _cursor(text: str) -> Cursor | None:
    if not text:
        return None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise RefusedError(400, "bad_filter", "The page's address is damaged: it does not say where to go on.")
    return Cursor(float(match[1]), match[2])


def _fits(wanted: str, value: Any) -> bool:
    if not wanted:
        return True
    if not isinstance(value, str):
        return False
    if "*" not in wanted:
        return value == wanted
    return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value, re.DOTALL) is not None


def _searched(event: Mapping[str, Any]) -> str:
    values = (event.get(name) for name in ("agent", "server", "tool", "rule", "reason", "arguments"))
    return "\n".join(_as_text(value) for value in values).casefold()


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(f"{name}\n{_as_text(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "\n".join(map(_as_text, value))
    return "" if value is None else str(value)
