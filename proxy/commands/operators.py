"""`interlock operators`: who may approve what agents propose, and with which token."""

from __future__ import annotations

from proxy.commands.token_commands import token_app
from proxy.identity.token_file import OperatorTokens

app = token_app(
    OperatorTokens,
    summary="Add, list and revoke operators.",
    name_help="The operator's name, which is recorded with each decision.",
    usage="use it with `interlock proposals --token-file` or INTERLOCK_OPERATOR_TOKEN, and give it to no agent.",
    revoked="Revoke an operator's token; it is refused at once, and earlier decisions stay valid.",
)
