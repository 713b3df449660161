"""A profile as rules on observed acts: what it does not grant is told, withheld or ends the server. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from proxy.core.acts import ActRule
from proxy.sandbox.violations import VIEW, violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.acts import Act, ActOutcome, ActPhase
    from proxy.core.model import Call
    from proxy.sandbox.profile import OnViolation, SandboxProfile
    from proxy.sandbox.violations import Boundaries

OUTCOMES: dict[OnViolation, ActOutcome] = {"tell": "tell", "withhold": "withhold", "end": "deny"}


@dataclass(frozen=True, slots=True)
class _Seen:
    """An act, in the words of `violations`."""

    capability: str
    action: str
    path: str | None
    peer: str | None
    name: str | None
    error: str | None


class ActRules(Protocol):
    """A source of rules on acts."""

    def __bool__(self) -> bool: ...

    def holds_answers(self, server: str, /) -> bool: ...

    def judge(self, act: Act, phase: ActPhase, call: Call, /) -> Iterator[ActRule]: ...


class SandboxRules:
    """One server's profile, for whatever judges acts by rules."""

    def __init__(self, profile: SandboxProfile, granted: Boundaries) -> None:
        self._profile = profile
        self._granted = granted

    def __bool__(self) -> bool:
        return True

    def holds_answers(self, _server: str, /) -> bool:
        """Return whether some answer may have to be withheld."""
        return self._profile.enforced and self._profile.violation != "tell"

    def judge(self, act: Act, phase: ActPhase, _call: Call, /) -> Iterator[ActRule]:
        """Yield the rule that an act violates. What is refused while a server starts is only told."""
        peer = f"{act.host}:{act.port}" if act.host is not None and act.port is not None else None
        seen = _Seen(act.kind, act.action, act.path, peer, act.host, act.error)
        enforced = self._profile.enforced
        found = violation(seen, self._granted, enforced=enforced)
        if found is not None:
            # Not to find a file is no proof of bad intent: programs look for settings in many places, and libraries
            # for services on unix sockets.
            only_told = phase == "startup" or found.mechanism == VIEW or found.action == "socket"
            outcome = "tell" if only_told else OUTCOMES[self._profile.violation]
            yield ActRule(f"sandbox: {found.line}", outcome, not enforced, found.told)


class CombinedRules:
    """Several sources of rules on acts as one."""

    def __init__(self, *sources: ActRules) -> None:
        self._sources = sources

    def __bool__(self) -> bool:
        return any(map(bool, self._sources))

    def holds_answers(self, server: str, /) -> bool:
        return any(each.holds_answers(server) for each in self._sources)

    def judge(self, act: Act, phase: ActPhase, call: Call, /) -> Iterator[ActRule]:
        for each in self._sources:
            yield from each.judge(act, phase, call)
