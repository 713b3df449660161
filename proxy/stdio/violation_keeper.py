"""What becomes of acts that a server's sandbox refused: recorded with their calls, withheld, or the end of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core import reasons
from proxy.core.model import Denial
from proxy.gate.refusal import sendable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from proxy.core.model import Context, InFlightCall, JsonObject
    from proxy.gate.gate import Gate
    from proxy.sandbox.profile import SandboxProfile
    from proxy.sandbox.violations import Violation

log = structlog.get_logger("interlock.sandbox")

REASON: Final = "sandbox_violation"
# Of one call, and of what was done outside of any: a server may try a thousand files.
MAX_RECORDED: Final = 40
MAX_CALLS: Final = 1024


class ViolationKeeper:
    """Takes violations from any thread. `end` is called on the loop where the profile wants the server ended."""

    def __init__(
        self,
        gate: Gate,
        context: Context,
        profile: SandboxProfile,
        end: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._recorder = gate.recorder
        self._context = context
        self._withholds = profile.enforced and profile.violation in ("withhold", "end")
        self._ends = profile.enforced and profile.violation == "end"
        self._end = end
        self._loop = loop
        self._lock = threading.Lock()
        self._known: dict[str, set[Violation]] = {}
        self._began = False

    def take(self, found: Violation, calls: Sequence[InFlightCall], *, only_told: bool = False) -> None:
        """Take what was refused while `calls` were in flight. Their answers are barred when this returns.

        `only_told`: it is recorded, and has no other consequence.
        """
        open_calls = [call for call in calls if not call.closed]
        self._began = self._began or bool(open_calls)
        if self._withholds and not only_told:
            # All of them: which of them it was for, a server that works on several does not say.
            for call in open_calls:
                call.barred = call.barred or self._denial(call, found)
        if self._is_new(found, open_calls):
            self._loop.call_soon_threadsafe(self._record, found, open_calls, only_told)

    def _is_new(self, found: Violation, calls: Sequence[InFlightCall]) -> bool:
        key = calls[0].call_id if calls else ""
        with self._lock:
            known = self._known.setdefault(key, set())
            if found in known or len(known) >= MAX_RECORDED:
                return False
            known.add(found)
            while len(self._known) > MAX_CALLS:
                del self._known[next(iter(self._known))]
        return True

    def _record(self, found: Violation, calls: Sequence[InFlightCall], only_told: bool = False) -> None:  # noqa: FBT001, FBT002
        detail: JsonObject = {**found.shown(), "phase": "call" if calls else "ambient"}
        if len(calls) > 1:
            detail["candidates"] = [call.call_id for call in calls]
        for call in calls or (None,):
            self._recorder.act_refused(self._context, call, f"sandbox: {found.line}", detail)
        # What programs try while they start, before any call, is only told.
        if self._ends and self._began and not only_told:
            log.error("ending a server for what it tried", server=self._context.server, line=found.line)
            self._end()

    def _denial(self, call: InFlightCall, found: Violation) -> Denial:
        reason = reasons.REASONS[REASON]
        told = self._masked(found.told)
        text = f"Interlock ({REASON}): {call.message.method!r} was executed, and its result is withheld. "
        text += f"{reason.meaning} {told} {reason.advice} Audit id: {call.call_id}."
        return Denial(REASON, sendable(text), f"sandbox: {found.line}", call.call_id)

    def _masked(self, text: str) -> str:
        try:
            masked = self._recorder.masked({"text": text})
        except Exception as error:
            log.exception("what was refused cannot be masked", error=str(error))
            return ""
        return str(masked["text"]) if isinstance(masked, dict) else ""
