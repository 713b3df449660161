"""Which agents and servers find which placeholders."""

from __future__ import annotations

import pytest

from proxy.core.vault import Credential
from proxy.errors import ConfigError
from proxy.vault.variables import agent_variables, server_variables


def one(
    name: str, variable: str | None = "TOKEN", servers: tuple[str, ...] = (), agents: tuple[str, ...] = ()
) -> Credential:
    return Credential(name=name, placeholder=f"of-{name}", variable=variable, servers=servers, agents=agents)


@pytest.mark.parametrize(
    ("credential", "server", "agent"),
    [
        (one("a"), {}, {"TOKEN": "of-a"}),
        (one("a", variable=None), {}, {}),
        (one("a", servers=("files",)), {"TOKEN": "of-a"}, {}),
        (one("a", servers=("other", "f*")), {"TOKEN": "of-a"}, {}),
        (one("a", servers=("FILES",)), {}, {}),
        (one("a", servers=("files",), agents=("nobody",)), {"TOKEN": "of-a"}, {}),
        (one("a", agents=("bot-*",)), {}, {"TOKEN": "of-a"}),
        (one("a", agents=("bot",)), {}, {}),
    ],
)
def test_who_finds_it(credential: Credential, server: dict[str, str], agent: dict[str, str]) -> None:
    assert server_variables([credential], "files") == server
    assert agent_variables([credential], "bot-1") == agent


def test_two_for_one_variable_are_told_and_none_is_chosen() -> None:
    with pytest.raises(ConfigError, match=r"credentials 'a' and 'b' give the server 'files' one variable, TOKEN"):
        server_variables([one("a", servers=("*",)), one("b", servers=("files",))], "files")
    with pytest.raises(ConfigError, match=r"the agent 'bot' one variable, TOKEN"):
        agent_variables([one("a"), one("b")], "bot")
    assert agent_variables([one("a"), one("b", agents=("other",))], "bot") == {"TOKEN": "of-a"}
