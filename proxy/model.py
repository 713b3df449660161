"""The frozen values that travel through Interlock, and the roles its parts play.

Pure: standard library only, no I/O. Everything here is read by many rooms, so
nothing here knows how bytes look on the wire, how a rule is written or where an
event is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from proxy.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.masking import Suppression
    from proxy.proposals import Running, Terms

type Json = bool | int | float | str | list[Json] | dict[str, Json] | None
type JsonObject = dict[str, Any]
type MessageId = str | int
type Respond = Literal["result", "error"]
type Governed = Literal["never", "sometimes", "always"]


class Kind(StrEnum):
    """What a JSON-RPC message is."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


@frozen()
class Message:
    """One strictly parsed JSON-RPC message.

    `value` is the whole message and is never changed in place: what is decided
    on is what `wire.jsonrpc.serialise` forwards.
    """

    kind: Kind
    value: JsonObject
    method: str | None = None
    id: MessageId | None = None

    @property
    def params(self) -> JsonObject:
        """The named parameters; empty where there are none."""
        params = self.value.get("params")
        return params if isinstance(params, dict) else {}


@frozen()
class ToolCall:
    """What a `tools/call` asks for. `arguments` is None where the message has none."""

    tool: str
    arguments: JsonObject | None


@frozen()
class Principal:
    """Who is calling: the agent's name, and whether a token proved it."""

    agent: str
    authenticated: bool = False


@frozen()
class Context:
    """Where a message came from and where it is going.

    `egress` is what policy says of the destination; None where nothing leaves the machine.
    """

    principal: Principal
    server: str
    transport: Literal["http", "sse", "websocket", "stdio"] = "http"
    revision: str | None = None
    session: str | None = None
    egress: Decision | None = None
    target: str = ""
    """What is asked for there, path and query; it may hold secrets, so it is never recorded."""


@frozen()
class Hints:
    """What a server says of a tool's nature (MCP's annotations); what it does not say is taken as MCP takes it."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def read(cls, annotations: object) -> Hints:
        """Read a tool's annotations. A tool that only reads destroys nothing; a hint that is no boolean is none."""
        said = annotations if isinstance(annotations, dict) else {}
        read_only = said.get("readOnlyHint") is True
        return cls(
            read_only=read_only,
            destructive=not read_only and said.get("destructiveHint") is not False,
            idempotent=said.get("idempotentHint") is True,
            open_world=said.get("openWorldHint") is not False,
        )

    def data(self) -> dict[str, bool]:
        """Give the hints under the names that MCP has for them."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


UNSAID = Hints()
"""The hints of a tool of which nothing is known."""


@frozen()
class Call:
    """One thing a client asks a server for: the subject of a decision.

    For `tools/call`, `tool` and `arguments` are set; for any other method the
    parameters are in `arguments` and `tool` is None. `hints` are what the server
    last said of the tool.
    """

    method: str
    server: str
    agent: str
    tool: str | None = None
    arguments: JsonObject | None = None
    hints: Hints = UNSAID


@frozen()
class EgressRequest:
    """A connection or request that wants to leave.

    `addresses` are those the host resolved to, as text; empty until it is
    resolved. `method` is None for a tunnel whose inside is not seen. With
    `judged_inside` it is a connection whose requests will each be judged by
    themselves, so rules that speak of methods need not stop it.
    """

    host: str
    port: int
    method: str | None = None
    addresses: tuple[str, ...] = ()
    agent: str = ""
    judged_inside: bool = False


class Outcome(StrEnum):
    """What a decision says, from lax to strict."""

    ALLOW = "allow"
    TWO_PHASE = "two_phase"
    DENY = "deny"


@frozen()
class Redaction:
    """What one matching redact rule asks for."""

    rule: str
    detectors: tuple[str, ...]
    on: frozenset[str]
    """Where to look: any of `arguments`, `result`; `request` for all that a plain request carries."""
    action: Literal["mask", "deny", "report"] = "mask"
    suppressions: tuple[Suppression, ...] = ()
    """Findings to let be."""


@frozen()
class Decision:
    """A policy's answer, as data: outcome, stable reason code, and the rules behind it."""

    outcome: Outcome
    reason: str
    rule: str | None = None
    message: str = ""
    respond: Respond = "result"
    severity: str | None = None
    matched: tuple[str, ...] = ()
    shadow: tuple[str, ...] = ()
    redactions: tuple[Redaction, ...] = ()
    policy_version: str = ""
    terms: Terms | None = None
    """Of a two_phase: on what terms."""


@frozen()
class Finding:
    """A secret or personal datum found in a value: what and where, never the value."""

    detector: str
    path: str
    fingerprint: str
    maskable: bool = True
    """False where the mask had to change a type, or the value could not be examined whole:
    the masked value is fit to record, not to forward."""
    record_only: bool = False
    """Whether nobody had asked for it: the record of it is masked, and what went on, if it did, was not."""

    def data(self) -> JsonObject:
        """Give it as a JSON object."""
        told: JsonObject = {
            "detector": self.detector,
            "path": self.path,
            "fingerprint": self.fingerprint,
            "maskable": self.maskable,
        }
        return told | {"record_only": True} if self.record_only else told


@frozen()
class Denial:
    """Why something was refused, as the agent and the operator read it."""

    reason: str
    text: str
    rule: str | None = None
    audit_id: str | None = None
    retryable: bool = False
    respond: Respond = "result"

    def data(self) -> JsonObject:
        """Give the machine-readable form that rides in `_meta` or in an error's `data`."""
        return {
            "reason": self.reason,
            "rule": self.rule,
            "audit_id": self.audit_id,
            "retryable": self.retryable,
        }


SCHEMA_VERSION = 1
"""Of events: raised when a field changes its meaning or goes, not when one is added (docs/audit.md)."""


@frozen(kw_only=True)
class AuditEvent:
    """One thing that happened. Append-only; arguments are masked before they get here.

    What is stored of it is `event_schema.StoredEvent`, which also says by whom it was written.
    """

    event_id: str
    kind: str
    time: float
    schema_version: int = SCHEMA_VERSION
    call_id: str | None = None
    agent: str | None = None
    authenticated: bool = False
    server: str | None = None
    transport: str | None = None
    revision: str | None = None
    session: str | None = None
    jsonrpc_id: MessageId | None = None
    method: str | None = None
    tool: str | None = None
    arguments: Json = None
    arguments_hash: str | None = None
    decision: str | None = None
    reason: str | None = None
    rule: str | None = None
    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    policy_version: str | None = None
    redactions: tuple[Finding, ...] = ()
    gate_ms: float | None = None
    upstream_ms: float | None = None
    total_ms: float | None = None
    result_digest: str | None = None
    result_size: int | None = None
    is_error: bool | None = None
    outcome: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


@frozen()
class PinRules:
    """What a policy makes of tools that change, and of descriptions with hidden characters."""

    mode: Literal["off", "record", "enforce"] = "record"
    hidden_characters: Literal["record", "enforce"] = "enforce"


@frozen()
class ToolPrint:
    """What a server says of one tool, as digests: of the whole, without the name, and field by field.

    `hidden` tells where invisible characters stand. `definition` is what was
    said itself, where it is not too long to keep.
    """

    digest: str
    body: str
    fields: Mapping[str, str]
    hidden: tuple[str, ...] = ()
    definition: JsonObject | None = None


@frozen()
class Pin:
    """One tool of one server: as last seen, and as approved, if it ever was.

    `drifted` holds from the first departure until somebody approves, even where
    the server goes back to what it said before.
    """

    seen: ToolPrint
    approved: ToolPrint | None
    drifted: bool
    since: float

    @property
    def stands(self) -> bool:
        """Whether the tool is as approved, and has been all along."""
        return self.approved is not None and not self.drifted


@frozen()
class ServerPins:
    """The pinned tools of one server.

    `listing` holds while the pages of the first list are still coming;
    `approvals` counts how often somebody changed what is approved.
    """

    first_seen: float
    listing: bool
    tools: Mapping[str, Pin]
    approvals: int = 0


class PinStore(Protocol):
    """Keeps pins. Safe for several processes; what cannot be read or written raises PinsUnavailableError."""

    def read(self, server: str) -> ServerPins | None:
        """Give a server's pins; None where it was never seen."""
        ...

    def update(self, server: str, change: Callable[[ServerPins | None], ServerPins | None]) -> ServerPins | None:
        """Replace a server's pins by what `change`, which is pure, makes of them; give the new ones.

        Nobody else's update comes between. None forgets the server; giving the
        same object back changes nothing.
        """
        ...

    def servers(self) -> Sequence[str]:
        """Give the servers that have pins, by name."""
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

    def could_allow(self, call: Call) -> bool:
        """Say whether there may be arguments with which a call of the tool is not denied."""
        ...

    def governs(self, call: Call) -> Governed:
        """Say whether calls of the tool are two-phase: never, by their arguments, or always."""
        ...

    @property
    def pins(self) -> PinRules:
        """What becomes of tools that change."""
        ...

    def unmatched(self, server: str) -> Decision:
        """Say what becomes of an answer whose call nobody knows: all that any rule might have asked for it."""
        ...


class Redactor(Protocol):
    """Finds and masks secrets in JSON values."""

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Give `value` with what `detectors` find masked, and what was found; not what `suppressions` let be.

        The masked value holds no finding and may always be recorded. It may be
        forwarded only where every finding is `maskable`.
        """
        ...

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Say that `mask` would find nothing in `value`, nor in `part` of it by itself, with any of `detectors`.

        False says nothing: it is for `mask` to tell.
        """
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


@dataclass(slots=True)
class Exchange:
    """A call under way: what the way back needs to know of the way out."""

    call_id: str
    message: Message
    context: Context
    call: Call
    decision: Decision
    started: float
    forwarded: float
    closed: bool = False
    commit: Running | None = None
    """The commit of a proposal that this call is."""
    said: str = ""
    """The end of what the server said beside the answer, masked: a secret may go on in what follows."""
    findings: tuple[Finding, ...] = ()
    """What was found in that."""
    begun: bool = False
    """Whether part of a secret had gone before the rest of it was found."""
    shared: bool = False
    """Whether other workers know of it, and any of them may end it."""


class Board(Protocol):
    """What workers show each other. What cannot be read or written raises BoardUnavailableError."""

    def claim(self, context: Context, message_id: MessageId) -> bool:
        """Take an id of a session; say whether no other worker has it."""
        ...

    def release(self, context: Context, message_id: MessageId) -> None:
        """Let an id go."""
        ...

    def post(self, exchange: Exchange) -> None:
        """Show a call that may be answered on a stream of another worker."""
        ...

    def find(self, context: Context, message_id: MessageId) -> Exchange | None:
        """Give the call of a session that an answer of this id belongs to, if any worker showed one."""
        ...

    def of_session(self, context: Context) -> list[Exchange]:
        """Give the calls of a session that no answer was seen to."""
        ...

    def end(self, call_id: str) -> bool:
        """Take a call for ended; say whether this worker is the one that ended it."""
        ...

    def ended(self, call_ids: Iterable[str]) -> set[str]:
        """Say which of these calls have ended."""
        ...

    def add_endpoint(self, server: str, path: str) -> None:
        """Keep where a legacy server takes messages whose answers come on a stream."""
        ...

    def is_endpoint(self, server: str, path: str) -> bool:
        """Say whether a legacy server takes messages there."""
        ...


@frozen()
class Pass:
    """Not MCP: leave it as it is."""


@frozen()
class Forward:
    """Forward the canonical form of `message`, and bring what comes back to `exchange`.

    `headers` are those that mirror the body and must change with it. `spelt` is the
    canonical form itself, where it is known already; `size` how much work it is to make.
    """

    message: Message
    exchange: Exchange
    headers: dict[str, str] = field(default_factory=dict[str, str])
    spelt: bytes | None = None
    size: int = 0


@frozen()
class Answer:
    """Answer in the server's place; nothing is forwarded.

    `status` is the HTTP status where there is one. No replies: what was refused
    expected none.
    """

    replies: tuple[JsonObject, ...]
    batch: bool = False
    status: int = 200


@frozen()
class Reject:
    """Refuse something whose sender cannot be answered by id."""

    denial: Denial
    status: int = 400


type Verdict = Pass | Forward | Answer | Reject
