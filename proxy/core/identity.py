"""What a token or a certificate proves of an agent beside its name: who vouches for it, and its claims. Pure."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from proxy.core.model import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ACTORS: Final = 8
MAX_SHOWN: Final = 32
MAX_SHOWN_TEXT: Final = 256
# OAuth writes these as one text with spaces (RFC 8693, 4.2); Microsoft calls it `scp`.
_SPACED: Final = frozenset({"scope", "scp"})
# What is asked of a token of its own, and is no claim at the top of it.
ACTOR: Final = "act.sub"
ACTOR_ISSUER: Final = "act.iss"


@frozen()
class Identity:
    """Who an agent is, by a provider of the settings. Two are equal if rules cannot tell them apart.

    `claims` are all of a token, so they are never recorded as a whole; `shown` names those that events carry.
    """

    provider: str
    issuer: str
    subject: str
    key: str
    """A digest of the claims without the token's times and its number."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    shown: tuple[str, ...] = field(default=(), compare=False)
    expires: float = field(default=0.0, compare=False)

    @property
    def actors(self) -> tuple[str, ...]:
        """Who acts for the subject (RFC 8693): the one that calls, then those before it; nobody for a plain token."""
        return actors_of(self.claims)

    def values(self, claim: str) -> frozenset[str]:
        """Return a claim's values as text; none where it is absent, or of a kind that cannot be compared."""
        return frozenset(_texts(claim, _find(self.claims, claim)))

    def data(self) -> dict[str, Any]:
        """Return what an event says of it, bounded; the caller masks it."""
        told: dict[str, Any] = {"provider": self.provider, "issuer": _cut(self.issuer), "subject": _cut(self.subject)}
        if actors := self.actors:
            told["act"] = [_cut(one) for one in actors]
        kept = {name: [_cut(one) for one in sorted(self.values(name))[:MAX_SHOWN]] for name in self.shown}
        if claims := {name: values for name, values in kept.items() if values}:
            told["claims"] = claims
        return told


def actors_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the subjects of a chain of actors, the one that calls first.

    Raises ValueError for a chain that is too long, or that names nobody somewhere.
    """
    found: list[str] = []
    act = claims.get("act")
    while act is not None:
        subject = act.get("sub") if isinstance(act, dict) else None
        if not isinstance(subject, str) or not subject or len(found) == MAX_ACTORS:
            raise ValueError("the chain of actors cannot be read")
        found.append(subject)
        act = act.get("act")
    return tuple(found)


def _find(claims: Mapping[str, Any], claim: str) -> Any:
    """Return the value of a claim: one at the top, one inside by a JSON pointer, or one of the actor's."""
    if claim in (ACTOR, ACTOR_ISSUER):
        act = claims.get("act")
        return act.get(claim.removeprefix("act.")) if isinstance(act, dict) else None
    if not claim.startswith("/"):
        return claims.get(claim)
    value: Any = claims
    for step in claim[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _texts(claim: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split(" ") if claim in _SPACED else [value]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, int):
        return [str(value)]
    if isinstance(value, list):
        return [text for one in value if not isinstance(one, list) for text in _texts("", one)]
    return []


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_TEXT else text[:MAX_SHOWN_TEXT] + "…"
