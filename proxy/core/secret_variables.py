"""The names of the environment variables that hold secrets. Pure."""

from __future__ import annotations

COMMIT_SECRET = "INTERLOCK_COMMIT_SECRET"  # noqa: S105  a variable's name
SAMPLER_KEY = "INTERLOCK_SAMPLER_KEY"
OPERATOR_TOKEN_ENV = "INTERLOCK_OPERATOR_TOKEN"  # noqa: S105
AGENT_TOKEN_ENV = "INTERLOCK_AGENT_TOKEN"  # noqa: S105
KEK_ENV = "INTERLOCK_KEK"
# Secrets come from these variables only: a flag shows in `ps`, and the settings file and `config show` are not secret.
SECRET_VARIABLES = frozenset({COMMIT_SECRET, SAMPLER_KEY, OPERATOR_TOKEN_ENV, AGENT_TOKEN_ENV, KEK_ENV})
