"""What the console knows of operators: whose token it is, whether they are still there, and what they may do."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.identity.token_file import OperatorTokens


class Role(IntEnum):
    """What an operator may do; each may do what those before it may."""

    VIEWER = 1
    APPROVER = 2
    ADMIN = 3


class Operators:
    """The operators of a state folder. Every method raises ConfigError or OSError where their file cannot be read."""

    def __init__(self, tokens: OperatorTokens) -> None:
        self._tokens = tokens

    def holder(self, token: str) -> str | None:
        return self._tokens.holder(token)

    def stamp(self, name: str) -> str | None:
        """Return what changes when an operator is revoked and added again; None where there is no such operator."""
        added = self._tokens.names().get(name)
        return None if added is None else repr(added)

    def role(self, name: str) -> Role:
        """Return what an operator may do. Raises KeyError where there is no such operator."""
        if self.stamp(name) is None:
            raise KeyError(name)
        return Role.ADMIN
