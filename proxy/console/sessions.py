"""Sessions of operators in the console: in memory, so that they end with it at the latest."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.console.operators import Operators
    from proxy.core.approvals import Role

IDLE_SECONDS: Final = 30 * 60.0
LONGEST_SECONDS: Final = 12 * 3600.0
GRANTED_SECONDS: Final = 3600.0
MAX_SESSIONS: Final = 500
PLACE: Final = "/s-"
PLACE_LETTERS: Final = 32


@dataclass(slots=True)
class Session:
    """Who is logged in. `csrf` must come with every request that changes something."""

    operator: str
    since: float
    seen: float
    csrf: str
    # Of the operator's entry: an operator who was revoked and added again is another one. None: there is no entry.
    stamp: str | None
    granted: Role | None = None  # the role that an identity provider gave
    runs: frozenset[str] = frozenset()  # the agents that it says run on the operator's behalf


class Sessions:
    """The sessions that are open. An operator who is revoked has none from that moment on."""

    def __init__(
        self,
        operators: Operators,
        clock: Callable[[], float] = time.monotonic,
        *,
        idle: float = IDLE_SECONDS,
        longest: float = LONGEST_SECONDS,
    ) -> None:
        self._operators = operators
        self._clock = clock
        self._idle = idle
        self._longest = longest
        self._open: dict[str, Session] = {}

    def open(self, operator: str, granted: Role | None = None, runs: frozenset[str] = frozenset()) -> str | None:
        """Return the secret of a new session; None where there is no such operator, and nobody granted a role."""
        stamp = self._operators.stamp(operator)
        if stamp is None and granted is None:
            return None
        self._drop_ended()
        if len(self._open) >= MAX_SESSIONS:
            del self._open[min(self._open, key=lambda key: self._open[key].seen)]
        secret, now = secrets.token_urlsafe(32), self._clock()
        self._open[_hash(secret)] = Session(operator, now, now, secrets.token_urlsafe(32), stamp, granted, runs)
        return secret

    def find(self, secret: str, *, seen: bool = True) -> Session | None:
        """Return the session of a secret, and count it as used where a person did that (`seen`)."""
        key = _hash(secret)
        session = self._open.get(key)
        if session is None:
            return None
        if not self.lives(session):
            del self._open[key]
            return None
        if seen:
            session.seen = self._clock()
        return session

    def lives(self, session: Session) -> bool:
        """Return whether a session goes on: its times are not over, and its operator is not revoked."""
        now = self._clock()
        # What an identity provider takes away is seen at the next sign-in, so that one comes sooner.
        longest = self._longest if session.granted is None else min(self._longest, GRANTED_SECONDS)
        in_time = now < session.seen + self._idle and now < session.since + longest
        return in_time and self._operators.stamp(session.operator) == session.stamp

    def end(self, secret: str) -> None:
        self._open.pop(_hash(secret), None)

    def _drop_ended(self) -> None:
        self._open = {key: session for key, session in self._open.items() if self.lives(session)}


def is_csrf_of(session: Session, given: str) -> bool:
    return hmac.compare_digest(session.csrf.encode(), given.encode("utf-8", "surrogatepass"))


def place_of(secret: str) -> str:
    """Return what the paths of a session's pages begin with: nobody finds it who has not the session's secret."""
    return PLACE + hashlib.sha256(b"place " + secret.encode("utf-8", "surrogatepass")).hexdigest()[:PLACE_LETTERS]


def _hash(secret: str) -> str:
    # What is looked up in a table by its hash gives nothing away by the time that takes.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
