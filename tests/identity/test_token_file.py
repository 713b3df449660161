"""Names and their tokens, whoever's they are."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.core.approvals import Operator, Role
from proxy.errors import ConfigError
from proxy.identity.token_file import FIRST, AgentTokens, OperatorTokens, Tokens, read_token

type Open = Callable[[], Tokens]


@pytest.fixture(params=[AgentTokens, OperatorTokens])
def open_tokens(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open the book of one folder, as each process does."""
    return lambda: request.param(tmp_path)


def test_a_token_proves_its_agent_and_no_other(open_tokens: Open) -> None:
    tokens = open_tokens()
    token, other = tokens.add("bot"), tokens.add("other")
    assert token.startswith(tokens.prefix)
    assert tokens.verify("bot", token)
    for name, wrong in (
        ("bot", other),
        ("bot", ""),
        ("bot", token + "x"),
        ("nobody", token),
        ("", ""),
        ("bot", "\udcff"),
    ):
        assert not tokens.verify(name, wrong)


def test_a_token_tells_whose_it_is(open_tokens: Open) -> None:
    tokens = open_tokens()
    token, other = tokens.add("bot"), tokens.add("other")
    assert (tokens.holder(token), tokens.holder(other)) == ("bot", "other")
    for wrong in ("", tokens.prefix, token + "x", token[:-1], token.upper(), "\udcff", "bot"):
        assert tokens.holder(wrong) is None
    tokens.revoke("bot")
    assert tokens.holder(token) is None


def test_tokens_are_stored_as_hashes_for_the_owner_alone(open_tokens: Open) -> None:
    tokens = open_tokens()
    token = tokens.add("bot")
    assert token not in tokens.path.read_text()
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


def test_a_change_by_another_process_is_seen_at_once(open_tokens: Open) -> None:
    running, command = open_tokens(), open_tokens()
    token = command.add("bot")
    assert running.verify("bot", token)
    command.revoke("bot")
    assert not running.verify("bot", token)
    assert not running.verify("bot", "")
    assert running.names() == {}


def test_names_come_with_when_they_were_added(open_tokens: Open) -> None:
    tokens = open_tokens()
    tokens.add("b")
    tokens.add("a.b-c_1")
    assert list(tokens.names()) == ["b", "a.b-c_1"]
    assert all(added > 1.7e9 for added in tokens.names().values())


@pytest.mark.parametrize("name", ["", "a b", "a:b", "-a", "a/b", "é", "x" * 65, "a\n", "[red]"])
def test_a_name_that_cannot_be_used_is_refused(name: str, open_tokens: Open) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        open_tokens().add(name)


def test_a_name_that_is_taken_is_refused_and_its_token_stays(open_tokens: Open) -> None:
    tokens = open_tokens()
    token = tokens.add("bot")
    with pytest.raises(ConfigError, match=f"{tokens.role}s revoke bot"):
        tokens.add("bot")
    assert tokens.verify("bot", token)


def test_revoking_nobody_names_who_there_is(open_tokens: Open) -> None:
    tokens = open_tokens()
    with pytest.raises(ConfigError, match=f"known {tokens.role}s: none"):
        tokens.revoke("x")
    tokens.add("bot")
    with pytest.raises(ConfigError, match=f"'x'; known {tokens.role}s: bot"):
        tokens.revoke("x")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"bot": 1}',
        b'{"bot": {}}',
        b'{"bot": {"token_sha256": "", "added": 1}}',
        b'{"bot": {"token_sha256": 5, "added": 1}}',
        json.dumps({"bot": {"token_sha256": "0" * 64, "added": "x"}}).encode(),
    ],
)
def test_a_file_of_another_form_is_an_error_and_never_a_pass(content: bytes, open_tokens: Open) -> None:
    tokens = open_tokens()
    tokens.path.write_bytes(content)
    for attempt in (
        lambda: tokens.verify("bot", ""),
        lambda: tokens.holder("x"),
        tokens.names,
        lambda: tokens.add("x"),
        lambda: tokens.revoke("bot"),
    ):
        with pytest.raises(ConfigError, match="restore it or delete it"):
            attempt()
    assert tokens.path.read_bytes() == content


def test_no_change_undoes_another_made_at_the_same_time(open_tokens: Open) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: open_tokens().add(f"bot{number}"), range(16)))
    tokens = open_tokens()
    assert all(tokens.verify(f"bot{number}", token) for number, token in enumerate(made))


def test_an_agents_token_can_be_told_from_an_operators(tmp_path: Path) -> None:
    assert AgentTokens(tmp_path).add("bot").startswith("ilk_")
    assert OperatorTokens(tmp_path).add("alice").startswith("ilo_")


def test_neither_book_takes_the_others_token(tmp_path: Path) -> None:
    agents, operators = AgentTokens(tmp_path), OperatorTokens(tmp_path)
    token, other = agents.add("same"), operators.add("same")
    assert agents.holder(other) is None
    assert operators.holder(token) is None
    assert not agents.verify("same", other)
    assert not operators.verify("same", token)


def test_an_agents_hash_copied_among_the_operators_is_worth_nothing(tmp_path: Path) -> None:
    agents, operators = AgentTokens(tmp_path), OperatorTokens(tmp_path)
    token = agents.add("bot")
    operators.path.write_bytes(agents.path.read_bytes())
    assert operators.holder(token) is None


def test_the_first_start_makes_an_operator_whose_token_only_the_owner_reads(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    assert list(tokens.names()) == [FIRST]
    assert tokens.holder(read_token(tokens.token_file)) == FIRST
    assert stat.S_IMODE(tokens.token_file.stat().st_mode) == 0o600
    assert read_token(tokens.token_file) not in tokens.path.read_text()


def test_a_later_start_changes_nothing(tmp_path: Path) -> None:
    OperatorTokens(tmp_path).ensure()
    before = OperatorTokens(tmp_path).path.read_bytes()
    OperatorTokens(tmp_path).ensure()
    assert OperatorTokens(tmp_path).path.read_bytes() == before


def test_a_start_that_broke_off_after_the_file_is_made_good_by_the_next(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    token = read_token(tokens.token_file)
    tokens.path.unlink()
    OperatorTokens(tmp_path).ensure()
    assert tokens.holder(token) == FIRST


def test_a_token_file_of_another_form_is_never_taken_for_a_token(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.token_file.parent.mkdir()
    tokens.token_file.write_text("\n")
    with pytest.raises(ConfigError, match="no operator token"):
        tokens.ensure()
    assert tokens.names() == {}


def test_where_an_operator_was_added_no_other_is_made(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.add("alice")
    tokens.ensure()
    assert list(tokens.names()) == ["alice"]
    assert not tokens.token_file.exists()


def test_a_revoked_first_operator_does_not_come_back_and_leaves_no_file(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    tokens.add("alice")
    tokens.revoke(FIRST)
    assert not tokens.token_file.exists()
    tokens.ensure()
    assert list(tokens.names()) == ["alice"]


def test_revoking_another_leaves_the_first_ones_file(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    tokens.add("alice")
    tokens.revoke("alice")
    assert tokens.holder(read_token(tokens.token_file)) == FIRST


def test_a_token_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the token file .*gone.*--token-file"):
        read_token(tmp_path / "gone")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot read the token file .*odd"):
        read_token(tmp_path / "odd")


def test_the_first_operator_is_admin_and_others_are_what_they_were_added_as(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    tokens.add("alice")
    vera = tokens.add("vera", Role.VIEWER, ["bot", "bot"])
    assert {one.name: one.role for one in tokens.operators()} == {
        FIRST: Role.ADMIN,
        "alice": Role.APPROVER,
        "vera": Role.VIEWER,
    }
    assert tokens.operator(vera) == Operator("vera", Role.VIEWER, frozenset({"bot"}))
    assert tokens.operator("ilo_wrong") is None
    assert tokens.named("vera") == tokens.operator(vera)
    assert tokens.named("nobody") is None


def test_an_operator_of_before_there_were_roles_approves_as_ever(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    token = tokens.add("alice")
    entry = json.loads(tokens.path.read_text())["alice"]
    tokens.path.write_text(json.dumps({"alice": {name: entry[name] for name in ("token_sha256", "added")}}))
    assert OperatorTokens(tmp_path).operator(token) == Operator("alice", Role.APPROVER)


@pytest.mark.parametrize(
    "odd", [{"role": "root"}, {"role": None}, {"role": ["admin"]}, {"agents": "bot"}, {"agents": [1]}]
)
def test_a_role_or_agents_of_another_form_let_nobody_in(odd: dict[str, object], tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    token = tokens.add("alice")
    entry = json.loads(tokens.path.read_text())["alice"]
    tokens.path.write_text(json.dumps({"alice": entry | odd}))
    with pytest.raises(ConfigError, match=r"has no operators \(it does not contain"):
        OperatorTokens(tmp_path).operator(token)


def test_a_changed_operator_keeps_the_token(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    token = tokens.add("alice", Role.VIEWER, ["bot"])
    assert tokens.change("alice", Role.ADMIN) == Operator("alice", Role.ADMIN, frozenset({"bot"}))
    assert tokens.change("alice", agents=[]) == tokens.operator(token) == Operator("alice", Role.ADMIN)
    with pytest.raises(ConfigError, match="there is no operator 'bob'"):
        tokens.change("bob", Role.ADMIN)
