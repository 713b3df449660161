"""Operators halt and resume: what they ask for is put in force on this machine first, then stored for all replicas.

A halt takes effect even where the store is away and where it cannot be recorded: stopping must never wait for
anything. To resume is the other way round: recorded first, and refused where the store does not follow.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from proxy.core.approvals import Role
from proxy.core.halts import Halt
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError, ReviewError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.approvals import Operator
    from proxy.core.halts import HaltList, HaltStore
    from proxy.core.interfaces import EventSink
    from proxy.core.model import JsonObject

log = structlog.get_logger("interlock.halts")

MAX_REASON: Final = 1000
MAX_NAME: Final = 300
MAX_HALTS: Final = 1000
BY_HAND: Final = "by-hand"


class LocalHaltFile(Protocol):
    """The halts of this machine."""

    def in_force(self) -> tuple[Halt, ...]: ...

    def add(self, halt: Halt) -> None: ...

    def remove(self, halt_ids: set[str]) -> None: ...

    def remove_by_hand(self) -> None: ...

    def learn(self, known: HaltList) -> bool: ...


class HaltControl:
    """Halts and resumes, for operators. Raises ReviewError where refused, ConfigError where files cannot be used."""

    def __init__(
        self,
        store: HaltStore,
        file: LocalHaltFile,
        sink: EventSink,
        clock: Callable[[], float] = time.time,
        origin: str = "api",
    ) -> None:
        self._store = store
        self._file = file
        self._sink = sink
        self._clock = clock
        self._origin = origin

    def in_force(self) -> Sequence[JsonObject]:
        """Return what is halted here."""
        return [_shown(halt) for halt in self._file.in_force()]

    async def halt(
        self,
        operator: Operator,
        reason: str,
        *,
        agent: str | None = None,
        server: str | None = None,
        tool: str | None = None,
        cut: bool = False,
    ) -> JsonObject:
        """Halt what fits all that is given; with nothing given, everything. `shared` says whether all replicas know."""
        _check_role(operator)
        scope = {"agent": _name(agent, "agent"), "server": _name(server, "server"), "tool": _name(tool, "tool")}
        if len(self._file.in_force()) >= MAX_HALTS:
            raise ReviewError("too_many_halts", f"there are {MAX_HALTS} halts; resume some, or halt everything")
        halt = Halt(new_id(), _reason(reason), operator.name, self._clock(), **scope, cut=cut, origin=self._origin)
        self._file.add(halt)
        await self._record("halted", halt, operator, halt.reason)
        try:
            self._file.learn(await self._store.add([halt]))
        except StoreUnavailableError as error:
            log.warning("other replicas do not know of a halt yet", halt_id=halt.halt_id, error=str(error))
            return _shown(halt) | {"shared": False}
        return _shown(halt) | {"shared": True}

    async def resume(self, operator: Operator, reason: str, halt_ids: Sequence[str]) -> Sequence[JsonObject]:
        """End halts by their ids; return them. Raises StoreUnavailableError and AuditUnavailableError, ending none."""
        _check_role(operator)
        reason, known = _reason(reason), {halt.halt_id: halt for halt in self._file.in_force()}
        if unknown := [halt_id for halt_id in halt_ids if halt_id not in known]:
            raise ReviewError("not_found", f"there is no halt {unknown[0]!r}; list them with `interlock halts`")
        ended = [known[halt_id] for halt_id in dict.fromkeys(halt_ids)]
        for halt in ended:
            await self._sink.record(_event("resumed", halt, operator, reason, self._clock()))
        stored = [halt.halt_id for halt in ended if halt.halt_id != BY_HAND]
        if stored:
            left = await self._store.remove(stored)
            self._file.remove(set(stored))
            self._file.learn(left)
        if len(stored) < len(ended):
            self._file.remove_by_hand()
        return [_shown(halt) for halt in ended]

    async def _record(self, kind: str, halt: Halt, operator: Operator, reason: str) -> None:
        try:
            await self._sink.record(_event(kind, halt, operator, reason, self._clock()))
        except AuditUnavailableError as error:
            log.exception("a halt is in force and could not be recorded", halt_id=halt.halt_id, error=str(error))


def _shown(halt: Halt) -> JsonObject:
    return halt.data() | {"scope": halt.scope}


def _event(kind: str, halt: Halt, operator: Operator, reason: str, now: float) -> AuditEvent:
    detail = {"halt_id": halt.halt_id, "operator": operator.name, "why": reason, "cut": halt.cut, "scope": halt.scope}
    detail["origin"] = halt.origin
    return AuditEvent(
        event_id=new_id(),
        kind=kind,
        time=now,
        agent=halt.agent,
        server=halt.server,
        tool=halt.tool,
        detail=detail,
    )


def _check_role(operator: Operator) -> None:
    if not operator.role.includes(Role.APPROVER):
        raise ReviewError("role_required", f"{operator.name} is a {operator.role}; to halt needs an approver")


def _reason(text: str) -> str:
    if not (reason := text.strip()):
        raise ReviewError("reason_required", "say why: it is recorded, and the agent is told")
    if len(reason) > MAX_REASON:
        raise ReviewError("bad_reason", f"the reason has more than {MAX_REASON} characters")
    return reason


def _name(text: str | None, what: str) -> str | None:
    if text is None:
        return None
    if not text.strip() or len(text) > MAX_NAME:
        raise ReviewError("bad_name", f"the {what} must be a name or a glob of 1 to {MAX_NAME} characters")
    return text.strip()
