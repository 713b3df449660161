"""Environment variables in which agents and wrapped servers find placeholders. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.core.vault import Credential


def server_variables(credentials: Iterable[Credential], server: str) -> dict[str, str]:
    """Return the variables of a wrapped server. Raises ConfigError where two credentials claim one."""
    return _variables([each for each in credentials if _fits(server, each.servers)], f"the server {server!r}")


def agent_variables(credentials: Iterable[Credential], agent: str) -> dict[str, str]:
    """Return the variables of an agent: of credentials without servers that it may use. Raises ConfigError."""
    own = [each for each in credentials if not each.servers and (not each.agents or _fits(agent, each.agents))]
    return _variables(own, f"the agent {agent!r}")


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _variables(credentials: Iterable[Credential], whose: str) -> dict[str, str]:
    found: dict[str, Credential] = {}
    for each in credentials:
        if each.variable is None:
            continue
        if each.variable in found:
            both = f"credentials {found[each.variable].name!r} and {each.name!r}"
            raise ConfigError(
                f"{both} give {whose} one variable, {each.variable}; change one by `interlock vault bind`"
            )
        found[each.variable] = each
    return {variable: each.placeholder for variable, each in found.items()}
