"""What a lane is made of: its phases, the one call that is in it, and what all lanes of a worker share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mitmproxy.proxy import events

    from addons.connections import ConnectionGuard
    from addons.egress import Egress
    from addons.identity import Identity
    from addons.lane.heads import RequestKey
    from addons.lane.template import Judged, Template
    from addons.limits import Limits
    from addons.mcp import HttpAddons
    from addons.tools_changed import Announcer
    from proxy.core.model import Forward
    from proxy.gate.gate import Gate


class Phase(Enum):
    """What a lane is doing."""

    IDLE = auto()
    READING = auto()
    """A known head has come, and a part of its body."""
    DECIDING = auto()
    WAITING = auto()
    """The request is sent, and nothing of an answer has been passed on."""
    STORING = auto()
    """The answer has come, and waits until its labels are stored."""
    STREAMING = auto()
    HANDING_OVER = auto()
    """The layers take over a request that is sent already."""


@dataclass(frozen=True, slots=True)
class LaneParts:
    """What every lane of a worker needs."""

    gate: Gate
    http: HttpAddons
    identity: Identity
    egress: Egress
    connections: ConnectionGuard
    announcer: Announcer
    limits: Limits
    seal_key: bytes


@dataclass(slots=True)
class LaneCall:
    """One request in the lane."""

    template: Template
    key: RequestKey
    judged: Judged
    raw: bytes
    """The request as it came."""
    body: bytes
    verdict: Forward | None = None
    sent: bytes = b""
    received: bytes = b""


class LaneSide(Protocol):
    """What a connection's handler asks of its lane."""

    def take(self, event: events.ConnectionEvent) -> bool: ...
    def note_layers(self) -> None: ...
    def learn(self, template: Template) -> None: ...
