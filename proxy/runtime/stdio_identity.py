"""Who calls over stdio: whom the token in INTERLOCK_AGENT_TOKEN, or in the file that another variable names, proves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.config import AGENT_TOKEN_FILE
from proxy.core.model import Principal
from proxy.core.secret_variables import AGENT_TOKEN_ENV
from proxy.errors import ConfigError, CredentialError
from proxy.identity.token_file import AgentTokens, read_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.config import Settings


def stdio_principal(settings: Settings, environ: Mapping[str, str]) -> Principal:
    """Return the caller. Raises ConfigError for a token that proves nobody, and without one where one is required."""
    token = _token(environ)
    if token is not None:
        return _proven(settings, token)
    if settings.agent_auth == "required":
        raise ConfigError(
            f"setting agent_auth = 'required': over stdio a caller proves who it is by {AGENT_TOKEN_ENV} or "
            f"{AGENT_TOKEN_FILE}; if you trust its client, set INTERLOCK_AGENT_AUTH=optional for this command"
        )
    return Principal(settings.default_agent)


def _token(environ: Mapping[str, str]) -> str | None:
    if file := environ.get(AGENT_TOKEN_FILE):
        return read_token(Path(file))
    return environ.get(AGENT_TOKEN_ENV) or None


def _proven(settings: Settings, token: str) -> Principal:
    if token.startswith(AgentTokens.prefix):
        name = AgentTokens(settings.state_dir).holder(token)
        if name is None:
            raise ConfigError(f"the token in {AGENT_TOKEN_ENV} is no agent's; `interlock agents list` names them")
        return Principal(name, authenticated=True)
    from proxy.runtime.outside_services import open_verifier  # noqa: PLC0415  slow to import, and most have no providers

    verifier = open_verifier(settings)
    if verifier is None:
        raise ConfigError(f"the token in {AGENT_TOKEN_ENV} is not one of ours, and setting identity names no issuers")
    try:
        return asyncio.run(verifier.verify(token))
    except CredentialError as error:
        raise ConfigError(f"the token in {AGENT_TOKEN_ENV} is refused ({error.reason}): {error.detail}") from error
