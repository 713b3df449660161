"""Binds a server's connections to its calls: while a call of a bound tool runs, it reaches the hosts that were named.

Asked where a connection is carried out, by the forwarder outside of the sandbox: the server has no other way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.sandbox.host_scope import NamedHost, named_hosts, names
from proxy.sandbox.violations import Violation
from proxy.stdio.bound_files import NAMING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.model import InFlightCall, Message
    from proxy.sandbox.profile import SandboxProfile
    from proxy.stdio.bound_files import TakeViolation

NOT_LISTED: Final = "network does not list it"
NOT_NAMED: Final = "network: from arguments, and no call in flight named it"


class BoundHosts:
    """One server's binding."""

    def __init__(self, profile: SandboxProfile) -> None:
        self._profile = profile
        # By the call in flight: the hosts that it named; None where the profile decides.
        self._open: dict[str, tuple[InFlightCall, frozenset[NamedHost] | None]] = {}

    def request_sent(self, message: Message, in_flight: InFlightCall) -> None:
        """Open what a request names, before it is written to the server."""
        if message.id is None:
            return
        self._open = {call_id: entry for call_id, entry in self._open.items() if not entry[0].closed}
        if message.method == "tools/call":
            bound = self._profile.tool(in_flight.call.tool or "").network == "from arguments"
            self._open[in_flight.call_id] = in_flight, named_hosts(message.params.get("arguments")) if bound else None
        elif message.method in NAMING:
            self._open[in_flight.call_id] = in_flight, named_hosts(message.params)

    def allows(self, host: str, port: int) -> bool:
        """Return whether a call in flight lets the server reach a host, which the profile lists already."""
        named = [hosts for call, hosts in self._open.values() if not call.closed]
        return any(hosts is None or names(hosts, host, port) for hosts in named)


class RefusedHosts:
    """Tells of connections that the forwarder refused."""

    def __init__(
        self, take: TakeViolation, under_way: Callable[[], Sequence[InFlightCall]], listed: Callable[[str, int], bool]
    ) -> None:
        self._take = take
        self._under_way = under_way
        self._listed = listed

    def __call__(self, host: str, port: int) -> None:
        line = NOT_NAMED if self._listed(host, port) else NOT_LISTED
        self._take(Violation("net.connect", "connect", f"{host}:{port}", line, "forwarder"), self._under_way())
