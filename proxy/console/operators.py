"""What the console knows of operators: whose token it is, whether they are still there, and what they may do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.core.approvals import Operator

if TYPE_CHECKING:
    from proxy.core.approvals import Role
    from proxy.identity.token_file import OperatorTokens


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

    def named(self, name: str) -> Operator | None:
        """Return an operator as the file has it now: a role that is taken away is gone from the next request on."""
        return self._tokens.named(name)

    def signed_in(self, name: str, granted: Role | None, runs: frozenset[str] = frozenset()) -> Operator | None:
        """Return who is in a session; with `granted`, the role that an identity provider gave, and who runs for them.

        Where the file has the name too, it is the same person, with the lower of both roles.
        """
        own = self.named(name)
        if granted is None:
            return own
        if own is None:
            return Operator(name, granted, runs)
        role = granted if own.role.includes(granted) else own.role
        return replace(own, role=role, agents=own.agents | runs)
