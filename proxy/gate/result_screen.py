"""Screens what the response path carries: results, what is sent beside them, instructions, prompts and resources."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from proxy.gate.incoming import REASON
from proxy.gate.refusal import withheld
from proxy.gate.tool_pins import print_tool

if TYPE_CHECKING:
    from proxy.core.model import Context, Denial, InFlightCall, JsonObject
    from proxy.gate.incoming import Incoming, Screened
    from proxy.gate.tool_catalog import ToolCatalog

_PARTS = ("result", "error", "params")


class ResultScreen:
    """Decides what of a response may pass, where policy asks for a look at it."""

    def __init__(self, incoming: Incoming, catalog: ToolCatalog | None) -> None:
        self._incoming = incoming
        self._catalog = catalog

    def must_read(self, in_flight: InFlightCall) -> bool:
        """Return whether a response that cannot be read may not pass."""
        asked = self._incoming.asks("results", in_flight.context, in_flight.call.tool or "")
        return any(screening.action != "flag" and not screening.shadow for screening in asked)

    def result(self, in_flight: InFlightCall, value: JsonObject) -> JsonObject | Denial:
        """Return the response to a call as it may pass; a refusal where it may not."""
        call = in_flight.call
        tool = call.tool or ""
        if not self._incoming.asks("results", in_flight.context, tool):
            return value
        shown = dict(value)
        for part in _PARTS:
            if part not in value:
                continue
            screened = self._incoming.screen(
                "results", in_flight.context, value[part], tool=tool, call_id=in_flight.call_id
            )
            if screened.withheld is not None or self._breaks(in_flight, part, value[part], screened):
                return withheld(REASON, in_flight.message.method, in_flight.call_id, screened.withheld)
            shown[part] = screened.value
        return value if all(shown[part] is value[part] for part in _PARTS if part in value) else shown

    def _breaks(self, in_flight: InFlightCall, part: str, before: Any, screened: Screened) -> bool:
        """Return whether a client would drop a result for what was cut from it, by the tool's schema."""
        if part != "result" or screened.value is before or self._catalog is None:
            return False
        return self._catalog.breaks(in_flight.call, "outputSchema", before, screened.value)

    def beside(self, in_flight: InFlightCall, value: Any) -> Any:
        """Return what is sent beside the answer to a call as it may pass; a Denial where it may not."""
        tool = in_flight.call.tool or ""
        screened = self._incoming.screen("results", in_flight.context, value, tool=tool, call_id=in_flight.call_id)
        if screened.withheld is not None:
            return withheld(REASON, in_flight.message.method, in_flight.call_id, screened.withheld)
        return screened.value

    def unmatched(self, context: Context, value: JsonObject) -> JsonObject | Denial:
        """Return a response to no known call as it may pass."""
        screened = self._incoming.screen("results", context, value)
        if screened.withheld is not None:
            return withheld(REASON, None, None, screened.withheld)
        shown: JsonObject = screened.value
        return shown

    def instructions(self, context: Context, result: JsonObject) -> JsonObject:
        """Return the result of a handshake with its instructions as they may pass."""
        if result.get("instructions") is None or not self._incoming.asks("instructions", context):
            return result
        screened = self._incoming.screen("instructions", context, result["instructions"])
        if screened.withheld is not None:
            return {name: value for name, value in result.items() if name != "instructions"}
        return result if screened.value is result["instructions"] else {**result, "instructions": screened.value}

    def entries(self, context: Context, key: str, result: JsonObject) -> JsonObject:
        """Return a list of prompts or resources with its entries as they may pass."""
        entries = result.get(key)
        if not isinstance(entries, list) or not self._incoming.asks("descriptions", context):
            return result
        shown = []
        for entry in entries:
            with suppress(RecursionError):  # nested too deep to be examined, so it is left out
                whole = entry if isinstance(entry, dict) else {"entry": entry}
                seen = self._incoming.screen_tool(context, whole, print_tool(whole))
                shown += [] if seen is None else [entry if seen is whole else seen]
        return {**result, key: shown}
