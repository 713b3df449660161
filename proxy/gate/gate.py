"""The gate of one process: `requests` decides what clients send, `responses` takes what servers send back.

The two stand beside each other and share the parts that are put together here. Neither knows a transport.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from proxy.gate.agent_cards import AgentCards
from proxy.gate.credential_owners import CredentialOwners
from proxy.gate.credentials import Credentials
from proxy.gate.event_recorder import EventRecorder
from proxy.gate.external import ExternalGate
from proxy.gate.flows import FlowGate
from proxy.gate.halts import ActiveHalts
from proxy.gate.in_flight import InFlightCalls
from proxy.gate.incoming import Incoming, Note, no_note
from proxy.gate.issued_names import IssuedNames
from proxy.gate.known_placeholders import PlaceholderRedactor
from proxy.gate.limits import CallLimits
from proxy.gate.mcp_endpoints import McpEndpoints
from proxy.gate.outbound_scan import OutboundScanner
from proxy.gate.plain_request import PlainRequests
from proxy.gate.plain_response import PlainResponses
from proxy.gate.reflections import Reflections
from proxy.gate.request import RequestGate
from proxy.gate.response import ResponseGate
from proxy.wire.body import READ_AT_ONCE
from proxy.wire.sse_ping_carrier import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.external import ExternalDecisions
    from proxy.core.flows import FlowStore
    from proxy.core.interfaces import EventSink, Policy, Redactor, SharedCalls
    from proxy.core.model import Decision, EgressRequest
    from proxy.core.vault import Vault
    from proxy.gate.flows import FlowPolicy
    from proxy.gate.rule_proposals import RuleProposals
    from proxy.gate.tool_catalog import ToolCatalog
    from proxy.gate.two_phase import TwoPhase

READERS = 2


class ReaderThreads:
    """Does work on large messages in threads, so that small calls need not wait for it."""

    def __init__(self) -> None:
        # Threads of their own, not the event loop's: looking up names must not queue behind large bodies.
        self._pool = ThreadPoolExecutor(READERS, "interlock-reader")

    async def run[*A, T](self, size: int, work: Callable[[*A], T], *args: *A) -> T:
        """Do `work`, which is on so many bytes: here where they are few, else in a thread."""
        if size <= READ_AT_ONCE:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args))

    def close(self) -> None:
        """Start no more work, and do not wait for what runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class OpenFlows:
    """What labels and flows need beside the gate: where marks are kept, and the key of fingerprints."""

    policy: Callable[[], FlowPolicy]
    store: FlowStore
    key: bytes


@dataclass(frozen=True, slots=True)
class GateParts:
    """What both directions need."""

    policy: Callable[[], Policy]  # returns the policy in force; it may be another one for each message
    redactor: Redactor
    recorder: EventRecorder
    in_flight: InFlightCalls
    threads: ReaderThreads
    timer: Callable[[], float]
    catalog: ToolCatalog | None
    two_phase: TwoPhase | None
    issued: IssuedNames
    seal_key: bytes  # seals what travels by way of the other side; the same in all workers of a proxy
    endpoints: McpEndpoints
    limits: CallLimits
    halts: ActiveHalts
    incoming: Incoming
    external: ExternalGate
    credentials: Credentials
    flows: FlowGate | None = None
    rule_proposals: RuleProposals | None = None


type OpenRuleProposals = Callable[[EventRecorder, ReaderThreads], RuleProposals]


class Gate:
    """Decides what passes. One per process; safe for concurrent calls on one event loop."""

    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        redactor: Redactor,
        sink: EventSink,
        body_limit: int = 1 << 26,
        clock: Callable[[], float] = time.time,
        catalog: ToolCatalog | None = None,
        two_phase: TwoPhase | None = None,
        shared_calls: SharedCalls | None = None,
        seal_key: bytes | None = None,
        mcp_endpoints: Sequence[str] = (),
        limits: CallLimits | None = None,
        halts: ActiveHalts | None = None,
        flows: OpenFlows | None = None,
        note: Note | None = None,
        services: ExternalDecisions | None = None,
        rule_proposals: OpenRuleProposals | None = None,
        vault: Vault | None = None,
        before_credentials: Callable[[], None] = lambda: None,
    ) -> None:
        # How long a call took is measured by a clock that never jumps; the wall clock may be set back meanwhile.
        timer = time.monotonic if clock is time.time else clock
        self.threads = ReaderThreads()
        self.reflections = Reflections(vault)
        self.credentials = Credentials(vault, body_limit, before_credentials, self.reflections)
        if vault is not None:
            redactor = PlaceholderRedactor(redactor, self.credentials.known)
        self.recorder = EventRecorder(sink, redactor, clock, self.threads, timer)
        self.in_flight = InFlightCalls(shared_calls=shared_calls)
        self.endpoints = McpEndpoints(mcp_endpoints, shared_calls)
        seal_key = seal_key or secrets.token_bytes(KEY_BYTES)
        self.flows: FlowGate | None = None
        if flows is not None:
            self.flows = FlowGate(flows.policy, flows.store, flows.key, redactor, self.recorder, clock)
        self.incoming = Incoming(
            policy, self.recorder, note or (self.flows.note if self.flows is not None else no_note)
        )
        if catalog is not None:
            catalog.incoming = self.incoming
        parts = GateParts(
            policy=policy,
            redactor=redactor,
            recorder=self.recorder,
            in_flight=self.in_flight,
            threads=self.threads,
            timer=timer,
            catalog=catalog,
            two_phase=two_phase,
            issued=IssuedNames(shared_calls),
            seal_key=seal_key,
            endpoints=self.endpoints,
            limits=limits or CallLimits(None),
            halts=halts if halts is not None else ActiveHalts(),
            incoming=self.incoming,
            external=ExternalGate(services, self.recorder, self.threads),
            credentials=self.credentials,
            flows=self.flows,
            rule_proposals=None if rule_proposals is None else rule_proposals(self.recorder, self.threads),
        )
        self.limits, self.halts = parts.limits, parts.halts
        owners = CredentialOwners(seal_key, shared_calls)
        scanner = OutboundScanner(redactor, body_limit, owners, self.credentials.known)
        judge = partial(_judge_host, policy)
        self.plain_requests = PlainRequests(scanner, self.recorder, parts.halts, judge, self.flows, self.credentials)
        self.cards = AgentCards(policy, self.recorder, self.incoming, catalog)
        self.pages = PlainResponses(self.incoming, self.cards, body_limit)
        self.responses = ResponseGate(parts, self.cards)
        self.requests = RequestGate(parts, self.plain_requests, body_limit, self.responses.abandon)

    def close(self) -> None:
        """Record every call still under way as ended with an unknown outcome."""
        for in_flight in self.in_flight.remaining():
            self.responses.abandon(in_flight, "unknown")
        self.threads.close()


def _judge_host(policy: Callable[[], Policy], request: EgressRequest) -> Decision | None:
    """Return what policy says of a destination by its name alone; None where it says nothing of destinations."""
    egress = getattr(policy(), "egress", None)
    return None if egress is None else egress.decide(request)
