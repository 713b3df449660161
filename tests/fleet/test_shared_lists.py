"""Agents and operators: what a list of tokens promises, in files and shared; and what holds between replicas."""

from __future__ import annotations

import concurrent.futures

import pytest

from proxy.core.approvals import Role
from proxy.errors import ConfigError
from proxy.fleet.open_state import open_tokens
from proxy.identity.token_file import AgentTokens, OperatorTokens
from tests.support.fleet_fixture import FleetWorld, listed
from tests.support.postgres import Postgres


@pytest.fixture(params=["files", "shared"])
def agents(request: pytest.FixtureRequest, world: FleetWorld) -> AgentTokens:
    if request.param == "shared":
        world.init("a")
    return open_tokens(AgentTokens, world.settings("a"))


def test_an_agent_is_known_until_it_is_revoked(agents: AgentTokens) -> None:
    token = agents.add("bot")
    assert agents.verify("bot", token)
    assert agents.holder(token) == "bot"
    assert list(agents.names()) == ["bot"]
    agents.revoke("bot")
    assert agents.holder(token) is None


def test_a_name_is_taken_once_and_unknown_ones_are_told(agents: AgentTokens) -> None:
    agents.add("bot")
    for attempt in (lambda: agents.add("bot"), lambda: agents.revoke("nobody"), lambda: agents.add("no/name")):
        with pytest.raises(ConfigError):
            attempt()
    assert list(agents.names()) == ["bot"]


def test_many_that_add_at_once_lose_nothing(fleet: FleetWorld) -> None:
    def add(number: int) -> str:
        return open_tokens(AgentTokens, fleet.settings("ab"[number % 2])).add(f"bot-{number}")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(add, range(8)))
    for name in "ab":
        known = open_tokens(AgentTokens, fleet.settings(name))
        assert [known.holder(token) for token in tokens] == [f"bot-{number}" for number in range(8)]


def test_an_operator_has_one_role_everywhere(fleet: FleetWorld) -> None:
    token = open_tokens(OperatorTokens, fleet.settings("a")).add("alice", Role.VIEWER, ["bot"])
    open_tokens(OperatorTokens, fleet.settings("b")).change("alice", Role.ADMIN)
    operator = open_tokens(OperatorTokens, fleet.settings("a")).operator(token)
    assert operator is not None
    assert (operator.name, operator.role, operator.agents) == ("alice", Role.ADMIN, {"bot"})


def test_a_proxys_login_adds_nobody(fleet: FleetWorld, writer_url: str, postgres: Postgres) -> None:
    token = open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    for kind in (AgentTokens, OperatorTokens):
        with pytest.raises(ConfigError, match=r"this database login may not change the fleet's .* interlock_admin"):
            open_tokens(kind, fleet.settings("b", writer_url)).add("mallory")
    assert open_tokens(AgentTokens, fleet.settings("b", writer_url)).holder(token) == "bot"
    for statement in ("INSERT INTO shared_documents VALUES ('x', 1, '', '', '')", "DELETE FROM shared_documents"):
        with pytest.raises(AssertionError, match="permission denied"):
            postgres.psql(statement, writer_url)
    with pytest.raises(AssertionError, match="permission denied"):
        postgres.psql("UPDATE fleet SET revision = 1", writer_url)


def test_a_revoked_agent_does_not_come_back_with_an_old_row(fleet: FleetWorld, postgres: Postgres) -> None:
    agents = open_tokens(AgentTokens, fleet.settings("a"))
    token = agents.add("bot")
    postgres.psql("CREATE TABLE kept AS SELECT * FROM shared_documents", fleet.url)
    agents.revoke("bot")
    postgres.psql(
        "DELETE FROM shared_documents; INSERT INTO shared_documents SELECT * FROM kept; DROP TABLE kept", fleet.url
    )
    replica = fleet.open("a")
    assert "older list:agents (generation 2) than this replica (3)" in (replica.refresh() or "")
    assert AgentTokens(fleet.settings("a").state_dir).holder(token) is None
    with pytest.raises(ConfigError, match="older agents"):
        open_tokens(AgentTokens, fleet.settings("a")).add("other")


def test_without_the_store_nothing_is_changed(fleet: FleetWorld) -> None:
    away = fleet.settings("b", fleet.url.replace("host=", "host=/nowhere"))
    with pytest.raises(ConfigError, match="cannot be changed now"):
        open_tokens(AgentTokens, away).add("bot")
    assert open_tokens(AgentTokens, away).names() == {}


def test_an_administrators_login_changes_agents_pins_and_keys(fleet: FleetWorld, postgres: Postgres) -> None:
    postgres.psql(
        "DO $$ BEGIN CREATE ROLE fleet_admin LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$; "
        "GRANT interlock_admin TO fleet_admin"
    )
    admin = fleet.url.replace("postgres@", "fleet_admin@")
    token = open_tokens(AgentTokens, fleet.settings("b", admin)).add("bot")
    assert open_tokens(AgentTokens, fleet.settings("a")).holder(token) == "bot"
    pins = fleet.open("b", admin).pins()
    for text in ("one", "two"):
        pins.update("s", lambda known, text=text: listed(known, ("t", text)))
    pins.approve("s", "t", None, 1_763_000_000.0)
    pins.forget("s")
    for statement in ("DELETE FROM shared_documents", "DROP TABLE shared_pins", "DELETE FROM shared_pins"):
        with pytest.raises(AssertionError, match=r"permission denied|must be owner"):
            postgres.psql(statement, admin)
