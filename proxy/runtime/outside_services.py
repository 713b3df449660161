"""Opens what asks others outside: services that rules name, and issuers of agents' and operators' tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.external.client import Services
    from proxy.identity.operator_verifier import OperatorVerifier
    from proxy.identity.verifier import AgentVerifier


def open_services(settings: Settings) -> Services | None:
    """Return what asks services that rules name; None where the settings name none. Raises ConfigError."""
    if settings.external is None:
        return None
    from proxy.external.client import Services  # noqa: PLC0415  for those who have services
    from proxy.external.settings import load_external  # noqa: PLC0415

    return Services(load_external(settings.external))


def open_verifier(settings: Settings) -> AgentVerifier | None:
    """Return what verifies agents by the providers of the settings; None without any. Raises ConfigError."""
    if settings.identity is None:
        return None
    from proxy.identity.settings import load_identity  # noqa: PLC0415  for those who have providers
    from proxy.identity.verifier import AgentVerifier  # noqa: PLC0415

    found = load_identity(settings.identity, settings.default_agent)
    return AgentVerifier(found) if found is not None else None


def open_operator_verifier(settings: Settings) -> OperatorVerifier | None:
    """Return what verifies operators' own tokens; None where no issuer signs them in. Raises ConfigError."""
    if settings.console_oidc is None:
        return None
    from proxy.identity.oidc_settings import load_oidc  # noqa: PLC0415  for those who have an issuer
    from proxy.identity.operator_verifier import OperatorVerifier  # noqa: PLC0415

    found = load_oidc(settings.console_oidc, settings.console_url)
    return OperatorVerifier(found) if found is not None else None
