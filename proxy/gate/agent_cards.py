"""Agent cards: pinned like the tools of a server, and screened for text that speaks to the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.core.model import Context, Denial, JsonObject
from proxy.errors import PinsUnavailableError
from proxy.gate.incoming import REASON
from proxy.gate.refusal import withheld
from proxy.wire.a2a import card_path, looks_like_card

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.interfaces import Policy
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.incoming import Incoming
    from proxy.gate.tool_catalog import ToolCatalog

log = structlog.get_logger("interlock.gate")

NOT_PINNED: Final = "tool_not_pinned"
EXTENDED: Final = "(extended)"


class AgentCards:
    """Decides what an agent may see of another agent's card. Never raises."""

    def __init__(
        self,
        policy: Callable[[], Policy],
        recorder: EventRecorder,
        incoming: Incoming,
        catalog: ToolCatalog | None,
    ) -> None:
        self._policy = policy
        self._recorder = recorder
        self._incoming = incoming
        self._catalog = catalog

    def takes(self, context: Context) -> bool:
        """Return whether an answer is read because a card is asked for."""
        return self._catalog is not None and card_path(context.target) is not None

    def is_strict(self, context: Context) -> bool:
        """Return whether a card that cannot be read may not pass."""
        return self.takes(context) and self._policy().pins.mode == "enforce"

    def take_page(self, context: Context, data: bytes) -> bytes | Denial | None:
        """Return a card as it may pass, the same bytes if whole; None where the answer is no card."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not looks_like_card(value):
            return None
        shown = self.take(context, value, card_path(context.target) or context.target.partition("?")[0])
        if isinstance(shown, Denial):
            return shown
        return data if shown is value else json.dumps(shown, ensure_ascii=False).encode()

    def take(self, context: Context, card: JsonObject, name: str, call_id: str | None = None) -> Any:
        """Return a card as it may pass; a Denial where it may not."""
        try:
            if not self._passes(context, card, name):
                return withheld(NOT_PINNED, name, call_id)
        except (PinsUnavailableError, RecursionError) as error:
            log.warning("an agent card cannot be pinned", server=context.server, error=str(error))
            if self._policy().pins.mode == "enforce":
                return withheld("internal_error", name, call_id)
        screened = self._incoming.screen("cards", context, card, call_id=call_id)
        if screened.withheld is not None:
            return withheld(REASON, name, call_id, screened.withheld)
        return screened.value

    def _passes(self, context: Context, card: JsonObject, name: str) -> bool:
        """Pin a card; return whether it may pass as it is now."""
        if self._catalog is None:
            return True
        passes, findings = self._catalog.take_card(context, name, card)
        for finding in findings:
            self._recorder.found(context, finding)
        return passes
