"""A vault among fakes."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.core.vault import Credential, CredentialUnavailableError, Secret


@dataclass
class FakeVault:
    """Knows what a test tells it, and notes what was asked for."""

    held: tuple[Credential, ...] = ()
    revoked: frozenset[str] = frozenset()
    values: dict[str, bytes] = field(default_factory=dict)
    known: tuple[tuple[Credential, Secret], ...] = ()
    damaged: bool = False
    asked: list[str] = field(default_factory=list)
    looks: int = 0

    def credentials(self) -> tuple[Credential, ...]:
        self.looks += 1
        if self.damaged:
            raise CredentialUnavailableError("*", "the file is damaged")
        return self.held

    def revoked_placeholders(self) -> frozenset[str]:
        return self.revoked

    async def value(self, name: str) -> Secret:
        self.asked.append(name)
        if name not in self.values:
            raise CredentialUnavailableError(name, "its file is gone")
        return Secret(self.values[name])

    def known_values(self) -> tuple[tuple[Credential, Secret], ...]:
        return self.known
