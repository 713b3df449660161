"""Agents' tokens are no operators'."""

from __future__ import annotations

from pathlib import Path

from proxy.identity.agents import AgentBook
from proxy.identity.operators import OperatorBook


def test_an_agents_token_can_be_told_from_an_operators(tmp_path: Path) -> None:
    assert AgentBook(tmp_path).add("bot").startswith("ilk_")
    assert OperatorBook(tmp_path).add("alice").startswith("ilo_")


def test_neither_book_takes_the_others_token(tmp_path: Path) -> None:
    agents, operators = AgentBook(tmp_path), OperatorBook(tmp_path)
    token, other = agents.add("same"), operators.add("same")
    assert agents.holder(other) is None
    assert operators.holder(token) is None
    assert not agents.verify("same", other)
    assert not operators.verify("same", token)


def test_an_agents_hash_copied_among_the_operators_is_worth_nothing(tmp_path: Path) -> None:
    agents, operators = AgentBook(tmp_path), OperatorBook(tmp_path)
    token = agents.add("bot")
    operators.path.write_bytes(agents.path.read_bytes())
    assert operators.holder(token) is None
