"""`interlock agents`: who may call through the proxy, and with which token."""

from __future__ import annotations

from proxy.commands.token_commands import token_app
from proxy.identity.token_file import AgentTokens

app = token_app(
    AgentTokens,
    summary="Add, list and revoke agents.",
    name_help="The agent's name.",
    usage="Use it as http://{name}:TOKEN@HOST:PORT in HTTPS_PROXY.",
    revoked="Revoke an agent's token; a running proxy refuses it at once.",
)
