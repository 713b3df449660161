"""`interlock policy proposals` on a state folder where no proxy runs."""

import asyncio
import json
import time

import pytest
from typer.testing import CliRunner

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.commands.command_tree import app
from proxy.core.approvals import Role
from proxy.core.rule_proposals import Room, RuleProposal
from proxy.errors import ConfigError, PolicyError, ReviewError
from proxy.identity.token_file import OperatorTokens
from proxy.store.open_store import open_database
from proxy.store.rule_proposal_store import RuleProposals

TEXT = """\
version: 1
rules:
- id: notes
  action: allow
  agents: [bot]
  tools: [read]
"""
ODD = "bot\x1b[31m\n# not a comment\nrules: []"


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    OperatorTokens(folder).ensure()
    LocalLog(folder / LOG_FILE).close()
    propose(folder, "01a1f000-0000-7000-8000-000000000001", agent=ODD)
    (tmp_path / "deny.yaml").write_text("version: 1\ndefault: deny\n")
    return folder


def propose(folder, name, **changes):
    plain = {"agent": "bot", "rule_id": "notes", "text": TEXT, "why": "I need\x1b]0;title\x07 notes", "digest": name}
    known = {"call_id": "c1", "policy_version": "v", "created_at": time.time()}
    proposal = RuleProposal(proposal_id=name, **{**plain, **known, **changes})

    async def add():
        database = open_database(None, folder)
        await RuleProposals(database).add(proposal, Room())
        await database.close()

    asyncio.run(add())


def run(state, *words):
    policy = ["--policy", str(state.parent / "deny.yaml")] if words[0] in ("show", "accept") else []
    given = ["policy", "proposals", *map(str, words), *policy, "--state-dir", str(state)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, given)


def test_what_an_agent_writes_moves_no_terminal(state):
    for words in (("list",), ("show", "01a1f000")):
        result = run(state, *words)
        assert result.exit_code == 0, result.output
        assert "notes" in result.stdout
        assert not {"\x1b", "\x07"} & set(result.stdout)
        assert "\n# not a comment" not in result.stdout


def test_show_says_what_the_rule_would_change(state):
    result = run(state, "show", "01a1f000", "--json")
    shown, summary, proof = map(json.loads, result.stdout.splitlines())
    assert shown["text"] == TEXT
    assert summary["kind"] == "summary"
    assert (proof["lets_more_through"], proof["witness"]["tool"]) == ("yes", "read")


def test_accept_writes_a_new_file_that_loads(state, tmp_path):
    file = tmp_path / "rule.yaml"
    assert run(state, "accept", "01a1f000", "-o", file).exit_code == 0
    text = file.read_text()
    assert text.splitlines()[1:] == TEXT.splitlines()
    assert text.startswith("# Proposed by bot")
    assert "accepted by" in text.splitlines()[0]
    other = "01a1f000-0000-7000-8000-000000000002"
    propose(state, other)
    assert isinstance(run(state, "accept", other, "-o", file).exception, PolicyError)
    assert file.read_text() == text
    assert json.loads(run(state, "list", "--state", "waiting", "--json").stdout)["proposal_id"] == other


def test_accept_without_a_file_prints_the_rule(state):
    result = run(state, "accept", "01a1f000")
    assert TEXT in result.stdout


def test_one_is_decided_once_and_a_rejection_says_why(state):
    assert isinstance(run(state, "reject", "01a1f000", "--reason", " ").exception, ReviewError)
    assert run(state, "reject", "01a1f000", "--reason", "too wide").exit_code == 0
    result = run(state, "accept", "01a1f000")
    assert "rejected already" in str(result.exception)


def test_only_an_admin_accepts_and_a_viewer_decides_nothing(state, monkeypatch):
    tokens = OperatorTokens(state)
    for name, role, words in (
        ("approver", Role.APPROVER, ("accept", "01a1f000")),
        ("viewer", Role.VIEWER, ("reject", "01a1f000", "--reason", "x")),
    ):
        monkeypatch.setenv("INTERLOCK_OPERATOR_TOKEN", tokens.add(name, role=role))
        assert getattr(run(state, *words).exception, "code", "") == "role_required"
    monkeypatch.setenv("INTERLOCK_OPERATOR_TOKEN", "nobody")
    assert isinstance(run(state, "list").exception, ConfigError)


def test_unknown_and_short_ids_are_refused(state):
    for name in ("01a1", "ffffffff"):
        assert getattr(run(state, "show", name).exception, "code", "") == "not_found"
    propose(state, "01a1f000-0000-7000-8000-000000000002")
    assert getattr(run(state, "show", "01a1f000").exception, "code", "") == "ambiguous_id"
