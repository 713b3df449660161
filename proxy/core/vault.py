"""Credentials that agents and local servers never hold: what is known of one, and who fetches its value. Pure.

An agent holds a placeholder, a text that looks like a credential and opens nothing. The proxy puts the real value in
once a call or request was decided and recorded, for the hosts and tools that the credential is bound to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from proxy.core.model import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK: Final = "ilkph"
"""Stands in every placeholder: what is without it holds none."""


SHORTEST: Final = 8
"""Bytes of the shortest value that is given out: one masked in answers must not be a word of other texts."""


class Place(StrEnum):
    """Where in a request a credential may stand."""

    HEADER = "header"
    PATH = "path"
    QUERY = "query"
    BODY = "body"


@frozen(kw_only=True)
class Credential:
    """What is known of a credential without its value."""

    name: str
    placeholder: str
    # Hosts as in egress rules; none: the credential is bound to nothing yet, and goes nowhere.
    hosts: tuple[str, ...] = ()
    # Globs. Empty: any request to these hosts. Else only `tools/call` of such a tool, or a request that a wrapped
    # server makes while such a call of it is under way.
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    places: tuple[Place, ...] = (Place.HEADER,)
    # Whether it may go over plain http:// to another machine.
    plain: bool = False
    # Wrapped servers (globs of their names) that find the placeholder in their environment, under this variable.
    servers: tuple[str, ...] = ()
    variable: str | None = None


class Secret:
    """A credential's value. It does not show itself: not by `str`, `repr`, formatting, pickling or in a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Return the value. Only what puts it on the wire, and what masks it in answers, calls this."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled")


@dataclass(frozen=True, slots=True)
class Filling:
    """What takes the place of placeholders in one request, at the last moment. It shows names and no value."""

    names: tuple[str, ...] = ()
    """The credentials that are put in."""
    as_text: tuple[str, ...] = ()
    """Those whose placeholders go on as they are, as part of a text."""
    head: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    """By placeholder: for headers, path and query."""
    arguments: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    """By placeholder: for the headers that mirror arguments."""
    body: Secret | None = None
    """The whole new body; None where it goes on as it is."""


class CredentialUnavailableError(Exception):
    """The source of a credential gave no value: the call is refused. The message never has the value."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"credential {name!r} is not available: {why}")
        self.name = name
        self.why = why


class Vault(Protocol):
    """The credentials in force, and their values."""

    def credentials(self) -> tuple[Credential, ...]:
        """Return all credentials in force; cheap, and the same tuple until a file or binding changes.

        Raises:
            CredentialUnavailableError: nobody knows what is a placeholder.
        """
        ...

    def revoked_placeholders(self) -> frozenset[str]:
        """Return the placeholders that are refused for ever. Raises what `credentials` raises."""
        ...

    async def value(self, name: str) -> Secret:
        """Return the value as it is now: a source that changed is read again.

        Raises:
            CredentialUnavailableError: the source is missing, unreadable, empty, too slow, or the name is unknown.
        """
        ...

    def known_values(self) -> tuple[tuple[Credential, Secret], ...]:
        """Return every value given out by this process, rotated ones included: what answers are masked for."""
        ...
