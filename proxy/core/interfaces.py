"""The Protocols that the gate's parts implement: policy, redactor, sink, shared calls. Pure: no I/O.

Tests have one contract for each, which every implementation keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.model import (
        AuditEvent,
        Call,
        Context,
        Decision,
        Finding,
        Governed,
        InFlightCall,
        Json,
        MessageId,
        PinRules,
        Place,
        Screening,
        Suppression,
    )


class IncomingRules(Protocol):
    """Says what becomes of text that speaks to the model."""

    def asked(self, place: Place, server: str, agent: str, tool: str = "") -> tuple[Screening, ...]:
        """Return what the rules ask for at a place."""
        ...


class Policy(Protocol):
    """Decides calls. Implementations do no I/O and never raise for a bad call."""

    @property
    def version(self) -> str:
        """A hash of the policy's content."""
        ...

    def decide(self, call: Call) -> Decision:
        """Decide `call`; a value that cannot be judged is a deny with its own reason."""
        ...

    def decide_beyond(self, call: Call, used: Mapping[str, int]) -> Decision:
        """Decide a call that these limits have no room for, by what is used of each."""
        ...

    def could_allow(self, call: Call) -> bool:
        """Return whether there may be arguments with which a call of the tool is not denied."""
        ...

    def governs(self, call: Call) -> Governed:
        """Return whether calls of the tool are two-phase: never, by their arguments, or always."""
        ...

    @property
    def offers_tasks(self) -> bool:
        """Whether calls of some tool may wait for people as tasks of the proxy's own."""
        ...

    def offers_task(self, call: Call) -> bool:
        """Return whether calls of the tool may."""
        ...

    @property
    def incoming(self) -> IncomingRules:
        """What becomes of text that speaks to the model; false where no rule asks."""
        ...

    @property
    def pins(self) -> PinRules:
        """What becomes of tools that change."""
        ...

    def unmatched(self, server: str) -> Decision:
        """Return the decision for a response whose call is unknown: the redactions of every rule that might match."""
        ...


class Redactor(Protocol):
    """Finds and masks secrets in JSON values."""

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Return `value` with what `detectors` find masked, and what was found; not what `suppressions` let be.

        The masked value holds no finding and may always be recorded. It may be
        forwarded only where every finding is `maskable`.
        """
        ...

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Say that `mask` would find nothing in `value`, nor in `part` of it by itself, with any of `detectors`.

        False decides nothing: then `mask` has to find out.
        """
        ...


@dataclass(frozen=True, slots=True)
class DetectorProblem:
    """What is wrong with a detector as written, and in which of its fields."""

    field: tuple[str | int, ...]
    message: str


class KnownDetectors(Protocol):
    """Knows the detectors that are built in, and what makes a good one."""

    def knows(self, name: str, /) -> bool:
        """Return whether `name` is a family or the id of a detector."""
        ...

    def names(self) -> Iterable[str]:
        """Return every family and id."""
        ...

    def objections(self, raw: Mapping[str, Any]) -> Iterable[DetectorProblem]:
        """Say what is wrong with a detector that a policy brings; nothing where it is good."""
        ...


class EventSink(Protocol):
    """Takes audit events."""

    async def record(self, event: AuditEvent) -> None:
        """Return once `event` is durable.

        Raises AuditUnavailableError where it cannot be made so.
        """
        ...

    def record_later(self, event: AuditEvent) -> None:
        """Take `event` without making anybody wait for it."""
        ...


class SharedCalls(Protocol):
    """Calls that workers share. What cannot be read or written raises SharedCallsUnavailableError."""

    def claim(self, context: Context, message_id: MessageId) -> bool:
        """Claim an id of a session; return False where another worker has it."""
        ...

    @property
    def spans_replicas(self) -> bool:
        """Whether ids have to be claimed among replicas, too."""
        ...

    async def claim_afar(self, context: Context, message_id: MessageId) -> bool:
        """Claim an id among replicas; return False where another one has it."""
        ...

    def release(self, context: Context, message_id: MessageId) -> None:
        """Release an id."""
        ...

    def post(self, in_flight: InFlightCall) -> None:
        """Share a call that may be answered on a stream of another worker."""
        ...

    def find(self, context: Context, message_id: MessageId, *, near: bool = False) -> InFlightCall | None:
        """Return the call of a session that an answer of this id belongs to, if any worker showed one.

        `near`: of this machine alone.
        """
        ...

    def of_session(self, context: Context) -> list[InFlightCall]:
        """Return the calls of a session that no answer was seen to."""
        ...

    def end(self, call_id: str) -> bool:
        """Mark a call as ended; return whether this worker is the one that ended it."""
        ...

    def ended(self, call_ids: Iterable[str]) -> set[str]:
        """Return which of these calls have ended."""
        ...

    def add_endpoint(self, server: str, path: str) -> None:
        """Store where a legacy server takes messages whose answers come on a stream."""
        ...

    def is_endpoint(self, server: str, path: str) -> bool:
        """Return whether a legacy server takes messages there."""
        ...

    def add_mcp_endpoint(self, server: str, path: str, agent: str) -> None:
        """Store where a server answered a call of this agent as MCP; no more than a share for each agent."""
        ...

    def is_mcp_endpoint(self, server: str, path: str) -> bool:
        """Return whether a server answered as MCP there."""
        ...

    def own_credential(self, digest: str, owner: str) -> str:
        """Store who got a credential, where nobody had; return who was the first."""
        ...

    def new_credentials(self) -> list[tuple[str, str]]:
        """Return the credentials that any worker stored since this one asked last, with their owners."""
        ...
