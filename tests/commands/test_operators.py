"""`interlock operators`."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.core.approvals import Operator, Role
from proxy.identity.token_file import OperatorTokens
from tests.commands.conftest import Run, complaint


def test_an_operators_token_is_printed_once_and_works(run: Run, tmp_path: Path) -> None:
    done = run("operators", "add", "alice")
    assert done.returncode == 0
    (token,) = done.stdout.splitlines()
    assert OperatorTokens(tmp_path / "state").holder(token) == "alice"
    assert token not in done.stderr
    assert "INTERLOCK_OPERATOR_TOKEN" in done.stderr


def test_operators_are_listed_without_their_tokens(run: Run) -> None:
    assert "No operators yet; `interlock operators add NAME`" in run("operators", "list").stdout
    token = run("operators", "add", "alice").stdout.strip()
    listed = run("operators", "list").stdout
    (row,) = map(json.loads, run("operators", "list", "--json").stdout.splitlines())
    assert "alice " in listed
    assert token not in listed
    assert row.keys() == {"operator", "role", "runs", "added"}


def test_a_revoked_operators_token_is_worth_nothing(run: Run, tmp_path: Path) -> None:
    token = run("operators", "add", "alice").stdout.strip()
    assert run("operators", "revoke", "alice").returncode == 0
    assert OperatorTokens(tmp_path / "state").holder(token) is None


def test_wrong_names_are_told(run: Run) -> None:
    run("operators", "add", "alice")
    assert "operator name '[red]' is not allowed" in complaint(run("operators", "add", "[red]"))
    assert "interlock operators revoke alice" in complaint(run("operators", "add", "alice"))
    assert "there is no operator 'bob'; known operators: alice" in complaint(run("operators", "revoke", "bob"))


def test_an_operator_has_the_role_that_was_asked_for_and_another_after_a_change(run: Run, tmp_path: Path) -> None:
    token = run("operators", "add", "vera", "--role", "viewer", "--runs", "bot").stdout.strip()
    tokens = OperatorTokens(tmp_path / "state")
    assert tokens.operator(token) == Operator("vera", Role.VIEWER, frozenset({"bot"}))
    assert "Operator vera is admin, runs bot." in run("operators", "change", "vera", "--role", "admin").stderr
    assert tokens.operator(token) == Operator("vera", Role.ADMIN, frozenset({"bot"}))
    assert run("operators", "add", "eve", "--role", "root").returncode == 2
