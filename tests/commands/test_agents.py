"""`interlock agents`."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.identity.token_file import AgentTokens
from tests.commands.conftest import Run, complaint


def test_an_agents_token_is_printed_once_and_works(run: Run, tmp_path: Path) -> None:
    done = run("agents", "add", "build-bot")
    assert done.returncode == 0
    (token,) = done.stdout.splitlines()
    assert AgentTokens(tmp_path / "state").verify("build-bot", token)
    assert token not in done.stderr
    assert "http://build-bot:TOKEN@HOST:PORT" in done.stderr


def test_agents_are_listed_without_their_tokens(run: Run) -> None:
    assert "No agents yet" in run("agents", "list").stdout
    assert run("agents", "list", "--json").stdout == ""
    token = run("agents", "add", "a").stdout.strip()
    listed = run("agents", "list").stdout
    (row,) = map(json.loads, run("agents", "list", "--json").stdout.splitlines())
    assert "a " in listed
    assert token not in listed
    assert row.keys() == {"agent", "added"}


def test_a_revoked_agents_token_is_worth_nothing(run: Run, tmp_path: Path) -> None:
    token = run("agents", "add", "a").stdout.strip()
    assert run("agents", "revoke", "a").returncode == 0
    assert not AgentTokens(tmp_path / "state").verify("a", token)


def test_wrong_names_are_told(run: Run) -> None:
    run("agents", "add", "a")
    assert "is not allowed" in complaint(run("agents", "add", "[red]"))
    assert "already exists" in complaint(run("agents", "add", "a"))
    assert "there is no agent 'b'; known agents: a" in complaint(run("agents", "revoke", "b"))
