"""The frozen values that travel through Interlock.

Pure: standard library only, no I/O. Everything here is read by many rooms, so
nothing here knows how bytes look on the wire, how a rule is written or where an
event is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from proxy.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.core.masking import Suppression
    from proxy.core.proposals import Running, Terms

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

    @staticmethod
    def read(annotations: object) -> Hints:
        """Read a tool's annotations. A tool that only reads destroys nothing; a hint that is no boolean is none."""
        if not isinstance(annotations, dict) or not annotations:
            return UNSAID
        read_only = annotations.get("readOnlyHint") is True
        return _hints(
            read_only,
            not read_only and annotations.get("destructiveHint") is not False,
            annotations.get("idempotentHint") is True,
            annotations.get("openWorldHint") is not False,
        )

    def data(self) -> dict[str, bool]:
        """Return the hints under the names that MCP has for them."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


@cache
def _hints(*said: bool) -> Hints:
    """Return the same object for the same hints: decisions are looked up by them."""
    return Hints(*said)


UNSAID = _hints(False, True, False, True)
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
        """Return it as a JSON object."""
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
        """Return the machine-readable form that rides in `_meta` or in an error's `data`."""
        return {
            "reason": self.reason,
            "rule": self.rule,
            "audit_id": self.audit_id,
            "retryable": self.retryable,
        }


SCHEMA_VERSION = 1
"""Of events: raised when a field changes its meaning or goes, not when one is added (docs/audit.md)."""


AS_RECORDED = "as recorded"
"""In place of an event's `arguments_hash`: that of its arguments, which are small and recorded as they came; it is made
when the event is written."""


@frozen(kw_only=True)
class AuditEvent:
    """One thing that happened. Append-only; arguments are masked before they get here.

    What is stored of it is `event_schema.StoredEvent`, which also says by whom it was written. It is given its id when
    it is written, unless somebody needs that before.
    """

    event_id: str = ""
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


@dataclass(slots=True)
class InFlightCall:
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
    in_flight: InFlightCall
    headers: dict[str, str] = field(default_factory=dict[str, str])
    encoded: bytes | None = None
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
