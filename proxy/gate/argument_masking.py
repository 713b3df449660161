"""Masks what a client's message carries, as the decision on it says, before it is forwarded or recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.model import Finding, Json, Kind, Message, Redaction
from proxy.gate.event_recorder import RECORDED
from proxy.gate.opaque_values import FROM_CLIENT, restore
from proxy.wire.jsonrpc import serialise
from proxy.wire.mcp import parse_tool_call

if TYPE_CHECKING:
    from proxy.gate.gate import GateParts
    from proxy.gate.refusal import CallState


class ArgumentMasking:
    """Masks arguments; a mask that would not fit the tool's schema blocks the call instead."""

    def __init__(self, parts: GateParts) -> None:
        self._redactor = parts.redactor
        self._catalog = parts.catalog
        self._issued = parts.issued

    def mask(self, message: Message, state: CallState) -> Message:
        """Mask the arguments as the decision says; note in `state` what was found."""
        assert state.decision is not None
        redactions = [redaction for redaction in state.decision.redactions if "arguments" in redaction.on]
        if self._is_clean(message, state, redactions):
            return message
        for redaction in redactions:
            part = "params" if message.kind is not Kind.RESPONSE else "result" if "result" in message.value else "error"
            masked, found = self._mask_part(message.value.get(part), redaction, state)
            state.findings += found
            if not found or redaction.action == "report":
                continue
            fit = redaction.action == "mask" and all(finding.maskable for finding in found)
            changed = _with_part(message, part, masked) if fit else message
            # A mask may make arguments that the tool's schema does not take.
            if fit and self._catalog is not None and state.call is not None:
                fit = not self._catalog.breaks(state.call, "inputSchema", message.params, changed.params)
            if fit:
                message = changed
            else:
                state.blocked_by = state.blocked_by or redaction.rule
        return message

    def _mask_part(self, value: Json, redaction: Redaction, state: CallState) -> tuple[Json, tuple[Finding, ...]]:
        masked, found = self._redactor.mask(value, redaction.detectors, redaction.suppressions)
        if not found:
            return masked, found
        return restore(value, masked, found, FROM_CLIENT, lambda text: self._issued.is_issued(state.context, text))

    def _is_clean(self, message: Message, state: CallState, redactions: list[Redaction]) -> bool:
        """Scan once for all that would be masked, be it to forward or to record; most messages have none of it."""
        if message.kind is Kind.RESPONSE or state.call is None:
            return False
        # One scan for the rule's detectors and the record's together is half the work of two. It may say False in
        # doubt, never True: the loop in `mask` then finds out, detector by detector.
        detectors = (*RECORDED, *[name for redaction in redactions for name in redaction.detectors])
        if not self._redactor.is_clean(message.value.get("params", {}), state.call.arguments, detectors):
            return False
        state.clean = state.call.arguments
        return True


def _with_part(message: Message, part: str, masked: Json) -> Message:
    """Return `message` with a masked part. Raises where it is no longer a call of the same tool."""
    changed = Message(message.kind, {**message.value, part: masked}, message.method, message.id)
    before, after = parse_tool_call(message), parse_tool_call(changed)
    if not isinstance(masked, dict) or (before and before.tool) != (after and after.tool):
        raise ValueError("masking changed what is called")
    serialise(masked)  # raises where the mask made something that has no JSON form, while the call can be refused
    return changed
