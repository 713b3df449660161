"""Decides whether a destination may be reached: resolves its name and asks the policy about the name and every address.

Any failure is a denial. Only the addresses in a judgement may be dialled: resolving the name again for the connection
would let a DNS server answer once for the policy and otherwise for the dial (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from proxy.core.model import Decision, EgressRequest, Outcome
from proxy.egress.name_counter import NameCounter
from proxy.policy.egress import DEFAULT_DENY
from proxy.policy.ip_address import parse_address
from proxy.policy.server_names import canonical_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from proxy.policy.decide import CompiledPolicy

    type LookUp = Callable[[str, int], Awaitable[tuple[str, ...]]]

log = structlog.get_logger("interlock.egress")

UNJUDGED: Final = Decision(Outcome.DENY, "internal_error", message="The destination could not be checked.")
OWN_MACHINE: Final = Decision(
    Outcome.DENY,
    "egress_loopback",
    message="This leads to the proxy's own machine, which a confined agent reaches by `--host-port` or a rule alone.",
)
ANSWERED: Final = Decision(Outcome.ALLOW, "egress_allowed")
"""The decision on a host that the proxy answers for itself. It has no address, so nothing can be dialled."""
RESERVED: Final = Decision(
    Outcome.DENY,
    "egress_denied",
    message="This name is the proxy's own. Agents propose rules there, on ports 80 and 443, where operators allow it.",
)
LOOK_UP_SECONDS: Final = 10.0
REMEMBER_SECONDS: Final = 5.0
MAX_REMEMBERED: Final = 1024


class Judgement(NamedTuple):
    """The decision on a destination, and the addresses it was made on."""

    decision: Decision
    addresses: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the destination may be reached, at these addresses only."""
        return self.decision.outcome is Outcome.ALLOW


class EgressGuard:
    """Decides on destinations by the policy in force. `own` returns the addresses that this proxy listens on.

    `answered` has the hosts, and their ports, that the proxy answers for itself. On other ports nobody is there: the
    name is not looked up, because whoever answers for it in a network would get what is meant for the proxy.
    """

    def __init__(
        self,
        policy: Callable[[], CompiledPolicy],
        own: Callable[[], Sequence[tuple[str, int]]],
        look_up: LookUp | None = None,
        answered: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        self.policy = policy
        self._answered = answered or {}
        self._own = own
        self._look_up = look_up or Resolver().look_up
        self._names = NameCounter()

    async def judge(self, request: EgressRequest, *, proven: bool = True) -> Judgement:
        """Decide on `request`; resolve its host unless its addresses are given. Never raises.

        `proven` is False where the host is only the client's claim about given addresses (transparent mode).
        """
        try:
            ports = self._answered.get(canonical_name(request.host))
            if ports is not None:
                ours = request.port in ports and proven and not request.addresses
                return Judgement(self._answer(request) if ours else RESERVED)
            judgement = await self._judge(request)
            # An allowed name claimed for another address proves nothing: then the address itself must be allowed.
            if proven or not judgement.allowed or await self._leads_to(request):
                return judgement
            return await self._judge(replace(request, host=request.addresses[0]))
        except Exception as error:
            log.exception("cannot check a destination", host=request.host, error=str(error))
            return Judgement(UNJUDGED)

    def _answer(self, request: EgressRequest) -> Decision:
        """Return the decision on a host that the proxy answers for: a rule can deny it, and the default does not."""
        decision = self.policy().egress.decide(request)
        denied = decision.outcome is not Outcome.ALLOW and decision.reason != DEFAULT_DENY
        return decision if denied else replace(ANSWERED, policy_version=self.policy().version)

    async def _judge(self, request: EgressRequest) -> Judgement:
        judgement = await self._judge_by_policy(request)
        return Judgement(OWN_MACHINE) if judgement.allowed and self._comes_back(request, judgement) else judgement

    def _comes_back(self, request: EgressRequest, judgement: Judgement) -> bool:
        """Return whether a confined agent would reach this machine itself, by whatever name, without being let."""
        if request.confined is None or request.port in request.confined:
            return False
        addresses = judgement.addresses or request.addresses or (request.host.strip("[]"),)
        return any(map(is_local, addresses)) and not self.policy().egress.names(judgement.decision)

    async def _judge_by_policy(self, request: EgressRequest) -> Judgement:
        egress = self.policy().egress
        if egress.counts_names and self._names.is_one_too_many(request):
            request = replace(request, many_names=True)
        decision = egress.decide(request, self._own_ports(request))
        # A name that is denied anyway is not resolved: the DNS query itself leaves the machine and can carry data.
        open_ended = decision.reason == DEFAULT_DENY and egress.allows_by_address
        settled = decision.outcome is not Outcome.ALLOW and not open_ended
        if settled or request.addresses:
            return Judgement(decision, request.addresses)
        addresses = await self._addresses(request)
        if not addresses:
            return Judgement(decision)
        known = replace(request, addresses=addresses)
        return Judgement(self.policy().egress.decide(known, self._own_ports(known)), addresses)

    async def _addresses(self, request: EgressRequest) -> tuple[str, ...]:
        """Return the host's addresses; none if it has none, and so cannot be dialled."""
        bare = request.host.strip("[]")
        if parse_address(bare) is not None:
            return (bare,)
        try:
            return await self._look_up(request.host, request.port)
        except (OSError, UnicodeError):
            return ()

    async def _leads_to(self, request: EgressRequest) -> bool:
        found = await self._addresses(request)
        return bool(request.addresses) and set(request.addresses) <= set(found)

    def _own_ports(self, request: EgressRequest) -> list[tuple[str, int]]:
        mine: list[tuple[str, int]] = []
        for host, port in self._own():
            if port != request.port:
                continue
            if ipaddress.ip_address(host).is_unspecified:
                # A listener on 0.0.0.0 is reached at every address of this machine, and only at those. Without this
                # an agent could reach the admin API or health port through the proxy by the machine's own LAN address.
                mine += [(a, port) for a in (*request.addresses, request.host.strip("[]")) if is_local(a)]
                host = "127.0.0.1"  # noqa: PLW2901
            mine.append((host, port))
        return mine


class Resolver:
    """Resolves names and caches the answers for a few seconds: one request asks up to three times."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def look_up(self, host: str, port: int) -> tuple[str, ...]:
        """Return every address of `host`. Raises OSError if there is none."""
        known = self._known.get(host)
        if known is not None and known[0] > self._clock():
            return known[1]
        async with asyncio.timeout(LOOK_UP_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[host] = (self._clock() + REMEMBER_SECONDS, addresses)
        return addresses


def is_local(text: str) -> bool:
    """Return whether an address is one of this machine's: only those can be bound, and a bind sends nothing."""
    address = parse_address(text)
    if address is None:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
