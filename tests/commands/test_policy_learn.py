"""`interlock policy learn` on logs and stores that were written by the log itself."""

import json
import time

import pytest
from typer.testing import CliRunner

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.commands.command_tree import app
from proxy.commands.policy_learn import marked_ids
from proxy.core.model import AuditEvent
from proxy.errors import PolicyError


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    sink = LocalLog(folder / LOG_FILE)
    calls = [("reader", "/srv/app/a"), ("reader", "/srv/app/b"), ("reader", "/etc/shadow"), ("other", "/opt/x")]
    for number, (agent, path) in enumerate(calls):
        names = {"agent": agent, "server": "files", "tool": "read_file", "method": "tools/call"}
        moment = {"event_id": f"e{number}", "call_id": f"c{number}", "time": time.time() - 60 + number}
        ruled = {"decision": "allow", "reason": "default_allow", "arguments": {"path": path}}
        sink.record_later(AuditEvent(kind="decided", **names, **moment, **ruled))
    sink.close()
    return folder


def run(*words):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["policy", *map(str, words)])


def test_the_learned_file_is_checked_tested_and_changes_no_decision_but_of_marked_calls(state, tmp_path):
    file, marked = tmp_path / "learned.yaml", tmp_path / "marked.txt"
    marked.write_text("c2  # a secret\n\n")
    result = run("learn", "--state-dir", state, "--except", marked, "-o", file)
    assert result.exit_code == 0, result.output
    assert "2 rules from 3 calls, no hosts (they are not recorded); not learned: 0 denied, 1 marked" in result.stderr
    assert run("check", "--strict", file).exit_code == 0
    assert run("test", file).exit_code == 0
    replayed = run("replay", "--state-dir", state, "--json", file)
    changes = [json.loads(line) for line in replayed.stdout.splitlines()][:-1]
    assert [(change["call_id"], change["now"]) for change in changes] == [("c2", "deny")]


def test_one_agent_and_shadow(state, tmp_path):
    file = tmp_path / "learned.yaml"
    assert run("learn", "--state-dir", state, "--agent", "other", "--shadow", "-o", file).exit_code == 0
    assert "mode: shadow" in file.read_text()
    assert "reader" not in file.read_text()


def test_json_has_the_evidence_of_each_rule(state):
    result = run("learn", "--state-dir", state, "--json")
    (shown,) = map(json.loads, result.stdout.splitlines())
    assert shown["learned"] == 4
    assert {audit_id for rule in shown["rules"] for audit_id in rule["audit_ids"]} == {"c0", "c1", "c2", "c3"}


def test_nothing_to_learn_from_is_an_error(state):
    result = run("learn", "--state-dir", state, "--agent", "nobody")
    assert isinstance(result.exception, PolicyError)


def test_a_list_of_marks_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(PolicyError, match="no file"):
        marked_ids([str(tmp_path / "none.txt")])
    assert marked_ids(["c1"]) == {"c1"}
