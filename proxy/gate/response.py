"""The response path, for every transport alike: result → redact → record.

Each call that was forwarded ends once. What fails here withholds the message: `ResponseGate` does not raise, and
whatever it could not mask or read does not reach the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from proxy.core.ids import new_id
from proxy.core.model import Call, Context, Denial, Finding, InFlightCall, JsonObject, Kind, Message
from proxy.errors import PinsUnavailableError, SharedCallsUnavailableError
from proxy.gate.agent_cards import EXTENDED
from proxy.gate.refusal import withheld
from proxy.gate.result_masking import mask_beside, mask_result
from proxy.gate.result_screen import ResultScreen
from proxy.gate.server_messages import ServerMessages
from proxy.gate.task_calls import with_related_task
from proxy.gate.tool_catalog import ENTRIES, HANDSHAKES, TOOLS_LIST, is_tool_list, without_instructions
from proxy.wire import refusal_messages
from proxy.wire.a2a import CARD_METHODS
from proxy.wire.jsonrpc import reencode
from proxy.wire.mcp_exchange import is_plain_result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.flows import Mark
    from proxy.gate.agent_cards import AgentCards
    from proxy.gate.gate import GateParts
    from proxy.gate.tool_catalog import ToolFinding

log = structlog.get_logger("interlock.gate")


class ResponseGate:
    """Takes what servers answer to the calls that are under way."""

    def __init__(self, parts: GateParts, cards: AgentCards) -> None:
        self._policy = parts.policy
        self._redactor = parts.redactor
        self._recorder = parts.recorder
        self._in_flight = parts.in_flight
        self._timer = parts.timer
        self._catalog = parts.catalog
        self._two_phase = parts.two_phase
        self._limits = parts.limits
        self._issued = parts.issued
        self._messages = ServerMessages(parts)
        self._endpoints = parts.endpoints
        self._screen = ResultScreen(parts.incoming, parts.catalog)
        self._cards = cards
        self._flows = parts.flows

    def bring(self, in_flight: InFlightCall, value: Any) -> Sequence[Mark]:
        """Return what has to be stored before what a server sent for a call is passed on. May raise."""
        return self._flows.bring(in_flight, value) if self._flows is not None else ()

    async def store(self, marks: Sequence[Mark]) -> None:
        """Store what results bring. Raises StoreUnavailableError: then they are not passed on."""
        if self._flows is not None:
            await self._flows.store(marks)

    def unstored(self, in_flight: InFlightCall | None) -> JsonObject | None:
        """Return the answer in place of one whose labels could not be stored; None where nobody waits for one."""
        if in_flight is None or in_flight.message.id is None:
            return None
        self._recorder.record_refusal("result_withheld", "store_unavailable", in_flight.context)
        return self._withheld(in_flight, in_flight.message.id, "store_unavailable")

    def find(self, context: Context, message_id: object) -> InFlightCall | None:
        """Return the call of this session that a response of this id answers, if any."""
        return self._in_flight.find(context, message_id)

    def observe(
        self, in_flight: InFlightCall, value: JsonObject, raw: bytes, encode: Callable[[JsonObject], bytes] = reencode
    ) -> JsonObject:
        """Return the response to `in_flight` masked, and record how the call ended.

        `raw` is the response as it came; `encode` makes of a changed one the bytes that the client gets. Returns
        `value` itself where nothing was changed, a refusal where that failed, and of a tool list what the agent may
        see.
        """
        if in_flight.barred is not None:
            self._end(in_flight, "withheld", size=len(raw))
            return self._refused(in_flight, value.get("id", in_flight.message.id), in_flight.barred)
        try:
            self._endpoints.learn(in_flight, value)
            if (refused := self._take_inside(in_flight, value)) is not None:
                self._end(in_flight, "withheld", size=len(raw))
                return self._refused(in_flight, value.get("id", in_flight.message.id), refused)
            shown = self._show(in_flight, value)
            if isinstance(shown, Denial):
                self._end(in_flight, "withheld", size=len(raw))
                return self._refused(in_flight, value.get("id", in_flight.message.id), shown)
            masked, findings = self._mask(in_flight, shown) if in_flight.decision.redactions else (shown, ())
        except Exception as error:
            log.exception("a result could not be rewritten", call_id=in_flight.call_id, error=str(error))
            self._end(in_flight, "unreadable", size=len(raw))
            return self._withheld(in_flight, value.get("id", in_flight.message.id), "internal_error")
        if masked is None:
            self._end(in_flight, "withheld", size=len(raw), findings=findings)
            return self._withheld(in_flight, value.get("id", in_flight.message.id), "secret_found")
        if in_flight.commit is not None and in_flight.commit.task_id is not None:
            masked = with_related_task(masked, in_flight.commit.task_id)
        outcome, is_error = _outcome(value)
        # The digest is of the bytes that the client gets: those that came, unless something in them was changed.
        sent = raw if masked is value else encode(masked)
        self._end(in_flight, outcome, masked, is_error=is_error, size=len(raw), delivered=sent, findings=findings)
        return masked

    def _take_inside(self, in_flight: InFlightCall, value: JsonObject) -> Denial | None:
        """Return why a response may not be passed on for the requests inside it; learn of a task that it announces."""
        if is_plain_result(value):
            return None
        refused = self._messages.refuse_inside(in_flight.context, value)
        if refused is None:
            self._messages.note_task(in_flight, value)
        return refused

    def _mask(self, in_flight: InFlightCall, value: JsonObject) -> tuple[JsonObject | None, tuple[Finding, ...]]:
        """Return a result masked, or None where it may not be passed on, and what was found."""
        masked, findings = mask_result(self._redactor, in_flight, value, self._issued)
        if not findings or masked is None or self._catalog is None:
            return masked, findings
        # A client checks a result against the tool's schema, and drops one that a mask has broken.
        broken = self._catalog.breaks(in_flight.call, "outputSchema", value.get("result"), masked.get("result"))
        return None if broken else masked, findings

    def mask_aside(self, in_flight: InFlightCall, value: Any) -> Any:
        """Mask what a server sends beside the answer to `in_flight`; a refusal where that fails."""
        try:
            own = self._messages.redactions(in_flight, value) if isinstance(value, dict) else None
            screened = self._screen.beside(in_flight, value)
            if isinstance(screened, Denial):
                return self._refused(in_flight, in_flight.message.id, screened)
            return mask_beside(self._redactor, in_flight, screened, own, self._issued)
        except Exception as error:
            log.exception("a message could not be masked", call_id=in_flight.call_id, error=str(error))
            return self._withheld(in_flight, in_flight.message.id, "internal_error")

    def take_message(self, context: Context, value: JsonObject) -> list[JsonObject] | None:
        """Return what to pass on in place of a server's request or notification that is refused; None if it is not."""
        try:
            return self._messages.take(context, value)
        except Exception as error:
            log.exception("a server's message is left out", server=context.server, error=str(error))
            return []

    def stand_in(self, context: Context, known: InFlightCall | None) -> InFlightCall:
        """Return a call in whose place messages on a stream that belongs to none are masked.

        They are masked as the policy in force would mask any response of the server. `known` is the one so far.
        """
        decision = self._policy().unmatched(context.server)
        if known is not None:
            known.decision = decision
            return known
        # No client uses such an id, so a refusal of it is told from a message.
        nobodys, now = Message(Kind.REQUEST, {}, None, f"beside {new_id()}"), self._timer()
        call = Call("", context.server, context.principal.agent)
        return InFlightCall(new_id(), nobodys, context, call, decision, now, now)

    def share(self, in_flight: InFlightCall) -> None:
        """Let other workers know of a call whose answer may come on another stream than its own."""
        # Where that fails, its answer is one to a call that nobody knows.
        if in_flight.context.session is None:
            return
        try:
            self._in_flight.share(in_flight)
        except SharedCallsUnavailableError as error:
            log.warning("other workers do not know of a call", call_id=in_flight.call_id, error=str(error))

    def on_unmatched_response(self, context: Context, value: JsonObject) -> JsonObject:
        """Take a response to a call that nobody knows, such as a replay after a restart."""
        # A tool list is filtered as any other, and everything is masked that any rule might have masked.
        try:
            shown = self._show_tools(context, value, continued=False) if is_tool_list(value) else value
            if context.session is None and "jsonrpc" not in value:
                return shown
            shown = self._show_words(context, shown)
            if (refused := self._messages.refuse_inside(context, value)) is not None:
                return refusal_messages.refuse(value.get("id", 0), None, refused)
            screened = self._screen.unmatched(context, shown)
            if isinstance(screened, Denial):
                return refusal_messages.refuse(value.get("id", 0), None, screened)
            return self._mask_unmatched(context, screened)
        except Exception as error:
            log.exception("an unexpected answer is withheld", server=context.server, error=str(error))
            return refusal_messages.refuse(value.get("id", 0), TOOLS_LIST, withheld("internal_error", TOOLS_LIST))

    def _mask_unmatched(self, context: Context, value: JsonObject) -> JsonObject:
        masked, findings = mask_result(self._redactor, self.stand_in(context, None), value, self._issued)
        if findings:
            kinds = sorted({finding.detector for finding in findings})
            log.warning("an answer to no known call held secrets", server=context.server, detectors=kinds)
        return masked or refusal_messages.refuse(value.get("id", 0), TOOLS_LIST, withheld("secret_found", TOOLS_LIST))

    def _show(self, in_flight: InFlightCall, value: JsonObject) -> JsonObject | Denial:
        """Return what the agent may see of a response, before anything is masked; or why it may see nothing of it."""
        method = in_flight.message.method
        if method == TOOLS_LIST:
            continued = in_flight.message.params.get("cursor") is not None
            return self._show_tools(in_flight.context, value, continued=continued)
        if method in HANDSHAKES or method in ENTRIES:
            return self._show_words(in_flight.context, value)
        if method in CARD_METHODS and isinstance(value.get("result"), dict):
            shown = self._cards.take(in_flight.context, value["result"], EXTENDED, in_flight.call_id)
            return (
                shown
                if isinstance(shown, Denial)
                else value
                if shown is value["result"]
                else {**value, "result": shown}
            )
        return self._screen.result(in_flight, value)

    def _show_words(self, context: Context, value: JsonObject) -> JsonObject:
        """Return a response without the instructions, prompts and resources that the agent may not see."""
        result, catalog = value.get("result"), self._catalog
        if catalog is None or not isinstance(result, dict):
            return value
        found: list[ToolFinding] = []
        if "serverInfo" in result or "instructions" in result or "supportedVersions" in result:
            try:
                result, new = catalog.show_instructions(context, result)
                found += new
                result = self._screen.instructions(context, result)
            except (PinsUnavailableError, RecursionError) as error:
                log.warning("instructions cannot be checked", server=context.server, error=str(error))
                result = without_instructions(result)
        for key in ENTRIES.values():
            result, new = catalog.show_entries(context, key, result)
            found += new
            result = self._screen.entries(context, key, result)
        for finding in found:
            self._recorder.found(context, finding)
        return value if result is value["result"] else {**value, "result": result}

    def _show_tools(self, context: Context, value: JsonObject, *, continued: bool) -> JsonObject:
        """Return a tool list with what the agent may see, and record what was found in it."""
        if self._catalog is None or not isinstance(value.get("result"), dict):
            return value
        result, findings = self._catalog.show(context, value["result"], continued=continued)
        for finding in findings:
            self._recorder.found(context, finding)
        return {**value, "result": result}

    def unreadable(self, in_flight: InFlightCall) -> JsonObject | None:
        """Return the answer in place of a response that cannot be read; None lets it pass."""
        message = in_flight.message
        self._end(in_flight, "unreadable")
        # What no rule would have masked is no worse for being unreadable; a tool list would be shown unfiltered.
        masking = any("result" in r.on and r.action != "report" for r in in_flight.decision.redactions)
        masking = masking or self._screen.must_read(in_flight)
        # Some client may read it, and then has something that nothing is known of.
        masking = masking or (self._flows is not None and self._flows.labels_result(in_flight))
        if message.id is None or not (masking or message.method == TOOLS_LIST):
            return None
        return self._withheld(in_flight, message.id, "unreadable_response")

    def _withheld(self, in_flight: InFlightCall, message_id: Any, reason: str) -> JsonObject:
        """Return the answer in place of a response that may not be passed on."""
        return self._refused(in_flight, message_id, withheld(reason, in_flight.message.method, in_flight.call_id))

    def _refused(self, in_flight: InFlightCall, message_id: Any, denial: Denial) -> JsonObject:
        message = in_flight.message
        return refusal_messages.refuse(message_id, message.method, denial, message.params)

    def abandon(self, in_flight: InFlightCall, outcome: str) -> None:
        """Record that no answer to `in_flight` was seen."""
        self._end(in_flight, outcome)

    def abandon_session(self, context: Context) -> None:
        """Record that no answer will come to what is under way in a session that is over."""
        for in_flight in self._in_flight.of_session(context):
            self.abandon(in_flight, "interrupted")

    def _end(
        self,
        in_flight: InFlightCall,
        outcome: str,
        answer: JsonObject | None = None,
        *,
        is_error: bool | None = None,
        size: int | None = None,
        delivered: bytes | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        # First: another worker may have seen the end, and only this one knows what the call was charged.
        if in_flight.charges:
            self._limits.ended(in_flight)
        if not self._in_flight.end(in_flight):
            return
        self._recorder.completed(
            in_flight, outcome, is_error=is_error, result_size=size, delivered=delivered, findings=findings
        )
        if self._two_phase and in_flight.commit:
            self._two_phase.ended(in_flight.commit, outcome, answer)


def _outcome(response: JsonObject) -> tuple[str, bool | None]:
    """Say how a call ended, as its response tells, and whether a tool said that it failed."""
    result = response.get("result")
    if "error" in response or not isinstance(result, dict):
        return "error" if "error" in response else "done", None
    is_error = result.get("isError") is True
    if result.get("resultType") == "input_required":
        return "input_required", is_error
    if result.get("resultType") == "task" or ("task" in result and "content" not in result):
        return "task", is_error
    return "tool_error" if is_error else "done", is_error
