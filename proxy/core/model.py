"""The frozen values that travel through Interlock. Pure: standard library only, no I/O.

Many packages read them, so nothing here knows how bytes look on the wire, how a rule is written or where an event is
stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from proxy.core.external import Ask, ExternalAnswer
    from proxy.core.flows import History
    from proxy.core.identity import Identity
    from proxy.core.limits import Charge
    from proxy.core.proposals import RunningCommit, Terms
    from proxy.core.vault import Filling

type Json = bool | int | float | str | list[Json] | dict[str, Json] | None
type JsonObject = dict[str, Any]
type MessageId = str | int
type Respond = Literal["result", "error"]
type Way = Literal["sealed", "plain", "claimed"]
type Governed = Literal["never", "sometimes", "always"]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen[T](*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass whose fields nobody sets again; equal values are equal, and hash alike."""
    # Not `dataclass(frozen=True)`: that sets each field by a call of `object.__setattr__`, so that an event of thirty
    # fields takes five times as long to make. The type checker, which reads the whole product, insists instead.
    return dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)


class Kind(StrEnum):
    """What a JSON-RPC message is."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


@frozen()
class Message:
    """One strictly parsed JSON-RPC message.

    `value` is the whole message and is never changed in place: what is decided on is what is forwarded.
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
    identity: Identity | None = None
    """Who vouches for the agent, and its claims, where a provider of the settings does."""


@frozen()
class Context:
    """Where a message came from and where it is going.

    `egress` is what policy says of the destination; None where nothing leaves the machine.
    """

    principal: Principal
    server: str
    transport: Literal["http", "sse", "websocket", "stdio", "hook"] = "http"
    revision: str | None = None
    session: str | None = None
    egress: Decision | None = None
    target: str = ""
    """The path and query of the request. It may hold secrets, so it is never recorded."""
    way: Way = "claimed"
    """Who can read what is sent: the server that `server` names alone; others on the way, too; or nobody knows who."""
    traceparent: str | None = None
    """The HTTP header of that name, as it came."""
    sandbox: JsonObject | None = None
    """What holds of a local server's sandbox; None where it has none."""


@frozen()
class Hints:
    """What a server says of a tool's nature (MCP's annotations). The defaults are MCP's own."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @staticmethod
    def read(annotations: object) -> Hints:
        """Parse a tool's annotations. A tool that only reads destroys nothing; a hint that is no boolean is none."""
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
    # One object for the same hints: policy finds its compiled rules by it, and the gate compares with `is`.
    return Hints(*said)


UNSAID = _hints(False, True, False, True)
"""The hints of a tool of which nothing is known."""


@frozen()
class Call:
    """What a client wants of a server: the subject of a decision.

    For `tools/call`, `tool` and `arguments` are set; for any other method the parameters are in `arguments` and `tool`
    is None. `hints` are what the server last said of the tool.
    """

    method: str
    server: str
    agent: str
    tool: str | None = None
    arguments: JsonObject | None = None
    hints: Hints = UNSAID
    history: History | None = None
    """What the agent did and read before, where a rule asks about that."""
    identity: Identity | None = None
    """What is proven of the agent beside its name."""
    answers: Mapping[Ask, ExternalAnswer] | None = None
    """What other services said of it; None where none was asked."""


@frozen()
class EgressRequest:
    """A connection or request to a destination outside.

    `addresses` are those the host resolved to, as text; empty until it is resolved. `method` is None for a tunnel that
    is not decrypted. With `judged_inside` it is a connection whose requests will each be judged by themselves, so
    rules on methods need not stop it.
    """

    host: str
    port: int
    method: str | None = None
    addresses: tuple[str, ...] = ()
    agent: str = ""
    judged_inside: bool = False
    many_names: bool = False
    """Whether many other names of the same site were asked for shortly before."""
    confined: tuple[int, ...] | None = None
    """Ports of this machine that are open to a confined agent; None where the agent is not confined."""
    identity: Identity | None = None
    """What is proven of the agent beside its name."""


class Outcome(StrEnum):
    """What a decision says, from lax to strict."""

    ALLOW = "allow"
    TWO_PHASE = "two_phase"
    EXTERNAL = "external"
    """Another service has to be asked first. Whoever does not ask it refuses."""
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Suppression:
    """A finding that somebody has reviewed and accepts. None narrows nothing; `detector` and `path` are globs."""

    reason: str
    detector: str | None = None
    path: str | None = None
    fingerprint: str | None = None


@frozen()
class Redaction:
    """What one matching redact rule asks for."""

    rule: str
    detectors: tuple[str, ...]
    on: frozenset[str]
    """What to scan: any of `arguments`, `result`; `request` for what a plain request carries, with the parts of it
    if not the usual ones: `url`, `headers`, `credentials`, `body`."""
    action: Literal["mask", "deny", "report"] = "mask"
    suppressions: tuple[Suppression, ...] = ()
    """Findings that are accepted."""


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
    charges: tuple[Charge, ...] = ()
    """What the call costs of which budgets, where limits apply to it."""
    asks: tuple[Ask, ...] = ()
    """Which services have to be asked, and have not been."""


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
    """Whether only the record is masked: no rule asked for it, so what was forwarded was not masked."""

    def data(self) -> JsonObject:
        """Return it as a JSON object."""
        shown: JsonObject = {"detector": self.detector, "path": self.path, "fingerprint": self.fingerprint}
        shown["maskable"] = self.maskable
        return shown | {"record_only": True} if self.record_only else shown


@frozen()
class Denial:
    """Why something was refused, as the agent and the operator read it."""

    reason: str
    text: str
    rule: str | None = None
    audit_id: str | None = None
    retryable: bool = False
    respond: Respond = "result"
    retry_after: int | None = None
    """In how many seconds it may be tried again, where that is known."""
    source: JsonObject | None = None
    """Where the data came from that may not go on."""

    def data(self) -> JsonObject:
        """Return the machine-readable form, which is put in `_meta` or in an error's `data`."""
        told: JsonObject = {
            "reason": self.reason,
            "rule": self.rule,
            "audit_id": self.audit_id,
            "retryable": self.retryable,
        }
        if self.retry_after is not None:
            told["retry_after"] = self.retry_after
        if self.source is not None:
            told["source"] = self.source
        return told


SCHEMA_VERSION = 1
"""Of events: raised when a field changes its meaning or goes, not when one is added (docs/audit.md)."""
AS_RECORDED = "as recorded"
"""Stands for the `arguments_hash` of small arguments that are recorded as they came. The writer computes it: it
encodes them anyway, and many events at a time cost a tenth."""


@frozen(kw_only=True)
class AuditEvent:
    """One thing that happened. Append-only; arguments are masked before they get here.

    What is stored of it is `event_schema.StoredEvent`, which also names the writer. The writer assigns `event_id`,
    unless a caller needs it before.
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
    drift: Literal["tolerant", "strict"] = "strict"
    unlisted: Literal["allow", "deny"] = "deny"


type Place = Literal["descriptions", "schemas", "instructions", "results", "pages", "cards", "messages", "arguments"]
"""Where text comes in that an agent reads; `messages` to other agents and `arguments` are what it says itself."""


@frozen()
class Screening:
    """What one matching rule on incoming text asks for: how sure a finding must be, by which signs, and its effect."""

    rule: str
    action: Literal["flag", "strip", "withhold"]
    confidence: Literal["possible", "likely", "sure"] = "likely"
    signs: frozenset[str] | None = None
    labels: tuple[str, ...] = ("untrusted",)
    shadow: bool = False


@dataclass(slots=True)
class InFlightCall:
    """A call under way: what the response path needs to know of the request."""

    call_id: str
    message: Message
    context: Context
    call: Call
    decision: Decision
    started: float
    forwarded: float
    closed: bool = False
    commit: RunningCommit | None = None
    """The commit of a proposal that this call is."""
    said: str = ""
    """The end of what the server sent beside the answer, masked: a secret may continue in the next message."""
    findings: tuple[Finding, ...] = ()
    """What was found in that."""
    begun: bool = False
    """Whether part of a secret was passed on before the rest of it was found."""
    shared: bool = False
    """Whether other workers know of it, and any of them may end it."""
    charges: tuple[Charge, ...] = ()
    """What it was charged of budgets."""
    unsent: bool = False
    """Whether it is certain that the server got nothing of it."""
    traceparent: str | None = None
    """The W3C trace context that it came in."""
    barred: Denial | None = None
    """Why its answer may not pass, whatever it says: for what the server did meanwhile."""


@frozen()
class Pass:
    """Not MCP: leave it as it is, but for the credentials that are put in."""

    filling: Filling | None = None


@frozen()
class Forward:
    """Forward the canonical form of `message`, and route the response to `in_flight`.

    `headers` are those that mirror the body and must change with it. `encoded` is the canonical form itself, where it
    is known already; `size` is how many bytes of work it is to make it.
    """

    message: Message
    in_flight: InFlightCall
    headers: dict[str, str] = field(default_factory=dict[str, str])
    encoded: bytes | None = None
    size: int = 0
    filling: Filling | None = None
    """The credentials that are put in at the last moment."""


@frozen()
class Answer:
    """Answer in the server's place; nothing is forwarded.

    `status` is the HTTP status where there is one. No replies: the message expected none.
    """

    replies: tuple[JsonObject, ...]
    batch: bool = False
    status: int = 200


@frozen()
class Reject:
    """Refuse something whose sender cannot be answered by id."""

    denial: Denial
    status: int = 400


class CallerLink(Protocol):
    """What a transport knows of a caller whose call is held, and can do for it meanwhile."""

    @property
    def takes_progress(self) -> bool:
        """Whether what `send` is given reaches the caller while its call waits."""
        ...

    def gone(self) -> bool:
        """Return whether nobody waits for the answer any more."""
        ...

    async def send(self, notification: JsonObject) -> None:
        """Send the caller a notification, where the transport can do that while a call waits."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """People have to approve the call first: `wait` for that, which returns the verdict and never raises."""

    wait: Callable[[CallerLink], Awaitable[Verdict]]
    message_id: MessageId | None = None


type Verdict = Pass | Forward | Answer | Reject | Held
